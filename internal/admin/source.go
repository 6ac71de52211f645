package admin

import (
	"time"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/histogram"
)

// Source is where the pages get their facts. Its functions are called for each
// request, from several goroutines at once, and should return soon.
type Source struct {
	Build Build
	// Store returns the store's counters; false until the store is open.
	Store func() (engine.Stats, bool)
	// Member returns the part of the node in its cluster; false if it is in none, or not yet.
	Member func() (Member, bool)
	// Traffic returns the service's counters.
	Traffic func() Traffic
	// Incidents returns what went wrong since the start.
	Incidents func() Incidents
	// Checks say, one by one, what has to hold for the service to be ready.
	Checks func() []Check
	// Alive returns why the process cannot recover by itself, nil if it can.
	Alive func() error
	// Facts are lines about the configuration for the status page.
	Facts []Fact
}

// Build says what is running.
type Build struct {
	Version, Commit, Go string
	Started             time.Time
}

// Traffic counts what the service did with its callers.
type Traffic struct {
	Requests     []RequestCount
	Shed         map[string]uint64 // by reason
	Transactions map[string]uint64 // by outcome: "commit", "conflict", "condition_failed"
	// Gates are what calls of the store pass, by kind: "reads", "writes" and "cached_reads".
	Gates  map[string]admission.Stats
	Panics uint64
	// Unauthenticated and Denied count what was refused for lack of an identity or a right.
	Unauthenticated, Denied uint64
	// Quotas is what identities use of theirs.
	Quotas      []auth.NamedUsage
	Connections int64
	Accepted    uint64
	Raw         int64  // connections of raw frames
	RawAccepted uint64 // such connections
	RawFrames   uint64 // frames that came by them
	Streams     int64  // calls by gRPC that are being served
	Bytes       int64  // what they are charged for
	// Waiting counts what waits for its client, and WaitingBytes what has come of it.
	Waiting, WaitingBytes int64

	Frames histogram.PowerCounts // by their operations
	Stages []StageTimes
	Slow   uint64 // requests that the slow log took
}

// StageTimes is what requests of a kind took in one stage of the server's work.
type StageTimes struct {
	Kind, Stage string
	Nanos       histogram.PowerCounts
}

// RequestCount is how many requests of a method ended with a code.
type RequestCount struct {
	Method, Code string
	Count        uint64
}

// Incidents count what an operator should know of.
type Incidents struct {
	Corruptions      uint64 // damage met, each time
	BackgroundErrors uint64 // flushes and compactions that will be tried again
	SlowDisk         uint64 // times that the disk did not answer for over a second
	FilesSetAside    uint64
	TailDropped      int64         // bytes that recovery dropped from the end of the log
	Recovery         time.Duration // how long opening the store took
	DamagedPlaces    int           // that are known now
	// ReloadFailures counts new files, such as certificates, that could not be used.
	ReloadFailures uint64
	ReloadFailing  bool // older files are in use, since the newest cannot be
	// AuditDropped counts lines that the audit log lacks.
	AuditDropped uint64
	// PagesRefused counts the requests for these pages that were refused for lack of a right.
	PagesRefused uint64
	// CertificateEnds is when the server's certificate expires; zero: there is none.
	CertificateEnds time.Time
	// Stalled is how long writes have been slowed, by reason.
	Stalled map[string]time.Duration
}

// Check is one condition of being ready.
type Check struct {
	Name string
	Err  error  // why it does not hold; nil if it does
	Note string // what is worth knowing though it holds
}

// Fact is one line of the status page.
type Fact struct{ Name, Value string }
