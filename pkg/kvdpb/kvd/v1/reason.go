package kvdpb

// ErrorDomain is the domain of every google.rpc.ErrorInfo that kvd sends.
const ErrorDomain = "kvd"

// Reasons of a failed operation, as in ErrorInfo and Status. They are part of the
// protocol: kv.proto gives their meaning.
const (
	ReasonKeyNotFound      = "KEY_NOT_FOUND"
	ReasonInvalidRequest   = "INVALID_REQUEST"
	ReasonRequestIDReused  = "REQUEST_ID_REUSED"
	ReasonInvalidPageToken = "INVALID_PAGE_TOKEN"
	ReasonTooLarge         = "TOO_LARGE"
	ReasonOverloaded       = "OVERLOADED"
	ReasonDeadlineExceeded = "DEADLINE_EXCEEDED"
	ReasonCancelled        = "CANCELLED"
	ReasonConditionFailed  = "CONDITION_FAILED"
	ReasonConflict         = "CONFLICT"
	ReasonOutcomeUnknown   = "OUTCOME_UNKNOWN"
	ReasonReadOnly         = "READ_ONLY"
	ReasonNotLeader        = "NOT_LEADER"
	ReasonShuttingDown     = "SHUTTING_DOWN"
	ReasonStoreFailed      = "STORE_FAILED"
	ReasonVersionGone      = "VERSION_GONE"
	ReasonCorruption       = "CORRUPTION"
	ReasonInternal         = "INTERNAL"

	ReasonUnauthenticated  = "UNAUTHENTICATED"
	ReasonPermissionDenied = "PERMISSION_DENIED"
	ReasonClusterRecovered = "CLUSTER_RECOVERED"
	ReasonAttemptTooLate   = "ATTEMPT_TOO_LATE"
)

// Keys of ErrorInfo.metadata.
const (
	MetadataVersion   = "version"    // with KEY_NOT_FOUND: the version read at; with CONDITION_FAILED: the version found; with ATTEMPT_TOO_LATE: see there
	MetadataKey       = "key"        // with CONDITION_FAILED and CONFLICT: the key, quoted as in Go
	MetadataCause     = "cause"      // with OVERLOADED: what was full; with VERSION_GONE: CauseOpening, or none; with NOT_LEADER: CauseElsewhere, or none
	MetadataSize      = "size"       // with TOO_LARGE, if a whole message is: its bytes
	MetadataLimit     = "limit"      // likewise: the most that a message may have
	MetadataRequestID = "request_id" // with INTERNAL and CORRUPTION: identifies the error in the server's log
)

// CauseOpening is the cause of VERSION_GONE if the version was read before the store
// was opened, or in another copy of it. No attempt at the same commit was applied, nor
// will one be.
const CauseOpening = "opening"

// CauseElsewhere is the cause of NOT_LEADER if the server knows which node leads: one of the other
// nodes takes the write, most likely at once.
const CauseElsewhere = "elsewhere"

// Names of the health services, in addition to KVService_ServiceDesc.ServiceName and
// "".
const (
	HealthLiveness  = "liveness"  // the process works; if not, restart it
	HealthReadiness = "readiness" // the server accepts requests; if not, route none to it
)

// NotReadyTrailer is the trailer of an answer to a check of HealthReadiness that says why the
// server is not ready.
const NotReadyTrailer = "kvd-not-ready-bin"

// IncarnationHeader is in the metadata of the answers of a node of a cluster, and of the calls of a
// client that was told it: the incarnation of the cluster.
const IncarnationHeader = "kvd-incarnation"

// FollowsLeaderHeader is in the metadata of a call whose client goes to the node that leads
// itself: no other node forwards it.
const FollowsLeaderHeader = "kvd-follows-leader"
