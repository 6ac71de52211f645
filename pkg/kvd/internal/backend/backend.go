package backend

import (
	"context"
	"time"
)

// Backend performs operations. A kvd.Client is one with the public methods around it.
//
// Obligations of an implementation:
//
//  1. All methods but Close are safe for concurrent use. None is called after Close has
//     begun, and Close is called once.
//  2. Keys, values and slices of a request are borrowed until the call returns, whatever it
//     returns. Results belong to the caller, except the items of a Scan with Borrow.
//  3. A call returns soon after its context ends.
//  4. Every error is a *[Failure]. One that does not match ErrUncertain means that nothing
//     was written.
//  5. A write that returned nil was applied once. It is as durable as was asked for.
//  6. A call with Timings fills them in, also if it fails.
type Backend interface {
	// Get reads one key, which is not empty. An absent key is ErrNotFound.
	Get(ctx context.Context, key []byte, at ReadVersion, t *Timings) (Value, error)
	// GetFirst reads the newest version of the first key of a transaction, which is not empty. An
	// absent key is an answer. The backend may answer without an Epoch, and has perhaps read
	// nothing then: it cannot tell from which opening of the store the answer is.
	GetFirst(ctx context.Context, key []byte, t *Timings) (Answer, error)
	// Operate performs one Put or Delete. Its key is not empty.
	Operate(ctx context.Context, op Op, t *Timings) (Answer, error)
	// OperateAll performs operations of which none depends on another, and fills in the
	// answer or the error of each. None has an empty key.
	OperateAll(ctx context.Context, ops []*Operation)
	// GetMany reads all keys at one version. It calls found once for each key, in order,
	// before it returns nil. After an error what found was told does not count.
	GetMany(ctx context.Context, keys [][]byte, at ReadVersion, t *Timings, found func(i int, v Value, ok bool)) error
	// Scan calls yield for the items of a range in order, all as of one version. It ends
	// with nil at the end of the range, or once yield returns false.
	Scan(ctx context.Context, s *Scan, yield func(Item) bool) error

	// Apply performs all writes at one version, which it returns, or none.
	Apply(ctx context.Context, writes []Mutation, o WriteOptions) (version uint64, err error)
	// Commit is Apply of a transaction's writes, if nothing that it read has been written
	// since; else it is ErrConflict.
	Commit(ctx context.Context, t *Transaction, o WriteOptions) (version uint64, err error)
	// Execute evaluates the guards and applies one of two lists of writes.
	Execute(ctx context.Context, e *Execution, o WriteOptions) (Executed, error)

	// BeginSnapshot pins the newest version. A lease of 0 leaves its length to the backend.
	// key, unless it is nil, is what the caller reads next; the backend may read it at once.
	BeginSnapshot(ctx context.Context, lease time.Duration, key []byte) (Snapshot, error)
	// KeepSnapshot renews a lease from now on, and returns what was granted.
	KeepSnapshot(ctx context.Context, id uint64, lease time.Duration) (granted time.Duration, err error)
	// ReleaseSnapshot ends a lease. It does not wait for a server.
	ReleaseSnapshot(id uint64)

	// SlowRequests returns the newest limit slow requests, all if it is 0.
	SlowRequests(ctx context.Context, limit int) (SlowLog, error)
	// ClearSlowRequests empties the slow log.
	ClearSlowRequests(ctx context.Context) error
	// SetSetting changes a setting of a running server, and returns its value before and after.
	SetSetting(ctx context.Context, name, value string) (before, after string, err error)
	// Cluster describes the nodes of the cluster that the server belongs to.
	Cluster(ctx context.Context) (Cluster, error)
	// TransferLeadership lets another node lead, 0 for the one that lacks least, and returns
	// which one does.
	TransferLeadership(ctx context.Context, to uint64) (leader uint64, err error)
	// AddNode adds a node at an address for the other nodes. replaces is 0 or the node that it
	// takes the place of.
	AddNode(ctx context.Context, peer string, replaces uint64) (AddedNode, error)
	// RemoveNode takes a node out of the cluster.
	RemoveNode(ctx context.Context, node uint64) error
	// MoveNode changes the address of a node for the other nodes.
	MoveNode(ctx context.Context, node uint64, peer string) error
	// Backup begins a backup, which lasts until its Close or until ctx ends. The store reads at
	// most rate bytes of its files per second; 0 or less: 16 MiB.
	Backup(ctx context.Context, rate int64) (Backup, error)
	// Scrub verifies every checksum of the store's files, and calls told with its progress
	// and each damaged place. It reads at most rate bytes per second; 0: no bound.
	Scrub(ctx context.Context, rate int64, told func(ScrubStep)) error
	// Ping reports whether requests are served.
	Ping(ctx context.Context) error
	// Close frees everything. It is called when no call is under way any more.
	Close() error
}

// Kind says what an operation does.
type Kind uint8

// The kinds of operations.
const (
	Get Kind = iota + 1
	Put
	Delete
	DeleteRange // of a Mutation alone
)

// Mutation is one write.
type Mutation struct {
	Kind  Kind
	Key   []byte        // of DeleteRange the start
	Value []byte        // of DeleteRange the end; empty: no end
	TTL   time.Duration // of a put; 0: none

	Condition *Condition // nil: none
}

// Op is one operation of one key: a read, or a write that is alone.
type Op struct {
	Mutation
	At         ReadVersion // of a read
	Durability Durability  // of a write
	// ReturnPrevious: the answer of a write has what the key held before.
	ReturnPrevious bool
}

// Operation is one of those of OperateAll.
type Operation struct {
	Op      Op
	Timings *Timings // nil: not asked for
	Answer  Answer
	Err     error
}

// Answer is what an operation brought.
type Answer struct {
	Version uint64 // that a read is valid at, or of the write
	Epoch   uint64 // of GetFirst: the opening of the store that Version belongs to; 0: not known
	Found   bool   // by a read, or by a write that asked for what was there
	Value   Value  // that was found
}

// Value is what a key holds: an item without its key, so small that a call returns it in
// registers.
type Value struct {
	Bytes   []byte
	Version uint64
	TTL     time.Duration
}

// Item is kvd.Item.
type Item struct {
	Key, Value []byte
	Version    uint64
	TTL        time.Duration
}

// ReadVersion is what a read asks to read at. The zero value is the newest version, which misses
// nothing that was acknowledged before.
type ReadVersion struct {
	Version uint64
	Epoch   uint64 // of Version: see Snapshot; 0: not known
	// Of the newest version, in a cluster: see kvd.Stale and kvd.MinVersion.
	MaxLag     time.Duration
	MinVersion uint64
}

// Loose reports whether a read of the newest version need not be, or has to be of a version at
// least.
func (v ReadVersion) Loose() bool { return v.Version == 0 && (v.MaxLag > 0 || v.MinVersion > 0) }

// Durability is kvd.Durability.
type Durability uint8

// The levels of durability. The numbers are those of the protocol.
const (
	Default Durability = iota
	Memory
	Buffered
	Sync
)

// ConditionKind says what a condition asks for.
type ConditionKind uint8

// The kinds of conditions. The numbers are those of the protocol; 0 is no condition.
const (
	MustExist ConditionKind = iota + 1
	MustNotExist
	VersionEquals
	ValueEquals
)

// Condition must hold of the key for a write to be applied.
type Condition struct {
	Kind    ConditionKind
	Version uint64 // of VersionEquals
	Value   []byte // of ValueEquals
}

// Operand is Value, also of no condition.
func (c *Condition) Operand() []byte {
	if c == nil {
		return nil
	}
	return c.Value
}

// WriteOptions are those of a batch or commit.
type WriteOptions struct {
	Durability Durability
	Timings    *Timings // nil: not asked for
}

// Range is kvd.Range.
type Range struct{ Start, End []byte }

// Scan is one scan.
type Scan struct {
	Range    Range
	Reverse  bool
	KeysOnly bool
	Borrow   bool   // items may be valid until yield returns, and must not be changed
	Limit    uint64 // 0: none
	At       ReadVersion
}

// Transaction is what a commit needs.
type Transaction struct {
	At       ReadVersion // zero if nothing was read
	Keys     [][]byte    // read
	Ranges   []Range     // scanned
	Expiring [][]byte    // keys that were found with a time to live
	Writes   []Mutation
	Snapshot uint64 // to release if the commit succeeds; 0: none
}

// Execution is kvd.Execution: Then if all guards hold, else Else. A list may be empty.
type Execution struct {
	Guards     []Guard
	Then, Else []Mutation
}

// Guard is a condition on one key.
type Guard struct {
	Key       []byte
	Condition Condition
}

// Executed is kvd.ExecuteResult.
type Executed struct {
	Succeeded bool
	Version   uint64
}

// Snapshot is a version that a backend keeps readable under a lease.
type Snapshot struct {
	ID      uint64
	Version uint64
	Epoch   uint64 // the opening of the store that Version belongs to; 0: not known
	Lease   time.Duration
	Read    *Answer // of the key that BeginSnapshot was given; nil: it was not read
	// EndsWithCommit: a commit whose Transaction names the snapshot, and succeeds, releases it.
	EndsWithCommit bool
}
