package engine

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// ReplicatedLog is the log of a cluster, as a store that is a member of it needs it. The
// engine calls Open, then Start, and in any case Close; after Start the other methods.
type ReplicatedLog interface {
	// Open opens the node's part of the log, and returns the place at which it begins.
	Open(LogFiles) (LogBegin, error)
	// Start begins to call m, one call at a time: first Configure, with the configuration at
	// the place where the store begins, then Apply for what is committed after it. at is that
	// place; nil: the beginning of the history. newest is the highest place that a partition has
	// saved; nil: there is none.
	//
	// Errors: kv.ErrCorrupt if the log does not continue from there, or does not reach newest.
	Start(at, newest *Position, m Member) error
	// Propose proposes a record that was numbered in a tenure, and keeps it. It does not
	// block. The outcome of the proposal is reported once to Member.Ended, by an id that is
	// above all before, perhaps before Propose returns.
	//
	// Errors, without an outcome: wal.ErrNoRoomYet, after which the same record is proposed
	// again, before any later one, when outcomes have been reported; what ended the log.
	Propose(t Tenure, record []byte) (id uint64, err error)
	// Read returns once everything that was acknowledged anywhere before the call has been
	// applied here. Errors: the cause of ctx; kv.ErrOverloaded; what ended the log.
	Read(ctx context.Context) error
	// Fresh reports whether everything that was acknowledged anywhere longer than lag ago has been
	// applied here, as far as calls of Read have shown. It does not wait.
	Fresh(lag time.Duration) bool
	// Leader returns the id of the node that leads, 0 if it is not known, and its address for
	// clients, empty if that is not known.
	Leader() (id uint64, address string)
	// Compact gives up entries that the store holds durably. It does not wait. Those up to free
	// may be needed by no node; of those up to most, which is not above free, the store knows
	// that they are too many to be kept for a node that lags. The log may keep more.
	Compact(free, most uint64)
	// Records calls fn with the records that were applied after an index, in their order, until
	// it returns false or an error. The records are borrowed.
	//
	// Errors: that of fn; the cause of ctx; kv.ErrOverloaded; what ended the log.
	Records(ctx context.Context, after uint64, fn func(record []byte) (more bool, err error)) error
	// Stats counts what this node has written to its part of the log.
	Stats() wal.Stats
	// Compare says what the state of this member was at a version. It does not block. All nodes
	// tell each other; if a majority had another state, Member.Differs is called.
	Compare(StateDigest)
	// Verify reads the files of this node's part of the log, but for the one that is written to, and
	// passes each with what is wrong with it to verified; an error of that ends it. It reads them
	// with what through returns for the file system of the log, and passes bytes to progress.
	Verify(ctx context.Context, through func(vfs.FS) vfs.FS, progress func(bytes int64), verified func(name string, err error) error) error
	// Full says why this member should not lead, as its disk is nearly full; empty: it may. If it
	// leads, the log then tries to let another one lead. It does not block.
	Full(why string)
	// Done is closed when the log has ended; Err then returns why, kv.ErrClosed after Close.
	Done() <-chan struct{}
	Err() error
	// Close ends the log, after a last report of outcomes, and waits for that. Idempotent.
	Close() error
}

// LogBegin is the entry that the node's log begins after: the first one of the history, or that
// of a checkpoint of another node.
type LogBegin struct{ Index, Term uint64 }

// LogFiles says where the node's part of a replicated log is.
type LogFiles struct {
	FS           vfs.FS
	Dir          string
	Data         string // the data directory of the store
	SegmentBytes int64
	Created      bool   // the store is being created: there may be no log yet
	Boot         uint64 // random id of this opening of the store
}

// Tenure is a time in which this node takes proposals, one after the other without a gap. A
// tenure lies within one term; a term may have several.
type Tenure struct{ Term, Number uint64 }

// Outcome is the end of a proposal.
type Outcome struct {
	ID        uint64
	Committed bool // and applied here; otherwise it was not, and may still be committed
}

// Member is what a replicated log calls: the store. None of the calls may be concurrent with
// another one, but for Differs.
type Member interface {
	// Room returns nil if the store has memory for a record. Otherwise it returns a channel that
	// is closed when a flush ends; then, and after some time in any case, Room is asked again, and
	// Apply is not called before it returns nil. It does not block.
	Room() <-chan struct{}
	// Apply applies a committed record, which it borrows. It waits for work in memory only.
	Apply(index, term uint64, record []byte) error
	// Configure notes the configuration that holds from an index on.
	Configure(index, term uint64, conf []byte) error
	// Checkpoint returns a version of the store as files, for a node that has to continue from
	// the position with the log. They are read with at most rate bytes per second. It may be called
	// concurrently with all others.
	Checkpoint(ctx context.Context, rate int64) (*Checkpoint, Position, error)
	// Lead says that a tenure has begun, and Lost that it is over: no further record of it is
	// taken. Some may still be committed.
	Lead(Tenure)
	Lost(Tenure)
	// Differs says that a majority of the nodes had another state than this one.
	Differs(why string)
	// Ended reports outcomes, in the order of the calls of Propose, after what is committed
	// was applied.
	Ended([]Outcome)
}

// leaderless is why a write is refused here.
func leaderless(log ReplicatedLog) error {
	id, address := log.Leader()
	return &kv.NotLeaderError{Leader: id, Address: address}
}
