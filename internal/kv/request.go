package kv

import (
	"time"

	"github.com/kvd-db/kvd/internal/trace"
)

// Lookup is one point read: the request and, after the read returned, the answer. The
// caller owns it and must not touch it in between.
type Lookup struct {
	Key  []byte
	Hash uint64 // keyhash.Sum(Key); set by the engine
	// Want selects the values to load; by default every value.
	Want Want
	// Budget, if not nil, is shared with other reads of the same call: a read that
	// finds it spent fails with ErrBudgetSpent.
	Budget *ReadBudget
	// Fresh says how new the state must be that is read. Of a call, the most demanding counts.
	Fresh Freshness
	// Stages, if not nil, are filled in for the call. Only those of the call's first
	// Lookup are.
	Stages *trace.Stages

	// Found tells a present key from an absent one; a present value may be empty.
	Found bool
	// Value is a copy that the caller owns. It reuses the memory that Value had before,
	// if that is large enough.
	Value []byte
	// Omitted: the key was found, but Want excludes its value, which is not in Value.
	Omitted bool
	Version SeqNum // the version that wrote the value; 0 if not found
	Expiry  uint64
	// ReadVersion is the version the answer is valid at, found or not.
	ReadVersion SeqNum
	// Err is set if this read alone failed, for example on a damaged block.
	Err error
}

// Question returns a Lookup with the same request and no answer.
func (l *Lookup) Question() Lookup {
	return Lookup{Key: l.Key, Hash: l.Hash, Want: l.Want, Budget: l.Budget, Fresh: l.Fresh, Stages: l.Stages}
}

// Drop forgets the answer, so that the read can be done again, and gives back what the value took of
// the Budget.
func (l *Lookup) Drop() {
	if l.Found && !l.Omitted {
		l.Budget.Give(len(l.Value))
	}
	*l = l.Question()
}

// Freshness says how new the state must be that a read sees which names no version. The zero
// Freshness is that it misses nothing that was acknowledged before it began. On a node that is
// alone every read is so.
type Freshness struct {
	// MaxLag: the read may miss what was acknowledged less than this before it began.
	MaxLag time.Duration
	// MinVersion: the read sees what this version did, or is refused with ErrVersionAhead.
	MinVersion SeqNum
}

// And returns what a read that shares its state with another one has to ask for.
func (f Freshness) And(other Freshness) Freshness {
	return Freshness{min(f.MaxLag, other.MaxLag), max(f.MinVersion, other.MinVersion)}
}

// Want selects the values that a read loads into memory. For any other value the read
// returns only the version and the expiry.
type Want int64

const (
	// WantAny loads every value. It is the zero Want.
	WantAny Want = 0
	// WantNone loads no value.
	WantNone Want = -1
)

// WantLength loads a value only if it has exactly this many bytes.
func WantLength(bytes int) Want { return Want(bytes) + 1 }

// Takes reports whether a value of this many bytes is loaded.
func (w Want) Takes(bytes int) bool { return w == WantAny || w == WantLength(bytes) }

// Write is one independent write of one key: the request and, after the write returned,
// the answer. The slices of Op are borrowed until then.
type Write struct {
	Op         Op
	Hash       uint64 // keyhash.Sum(Op.Key); set by the engine
	RequestID  RequestID
	Durability Durability // DurabilityDefault: as the store is configured
	// Stages, if not nil, are filled in for the call. Only those of the call's first
	// Write are.
	Stages *trace.Stages

	// If, unless nil, must hold of the key; otherwise the write fails with a
	// *ConditionError.
	If *Condition
	// Previous, unless nil, receives what the key held before the write, or what made
	// the condition fail.
	Previous *Lookup
	// Read, unless nil, is a read of the key that the write depends on: it fails with a
	// *ConflictError if the key was written, or has expired, since. Set by the engine.
	Read *Lookup

	Version SeqNum // of this write, once acknowledged
	// Deduplicated: an earlier attempt was applied, at Version, and this one was not.
	Deduplicated bool
	Err          error
}

// WriteOptions are the options of one atomic batch.
type WriteOptions struct {
	Durability Durability // DurabilityDefault: as the store is configured
	RequestID  RequestID
	// Deduplicated, unless nil, is set to whether an earlier attempt was applied and
	// this one was not.
	Deduplicated *bool
	// Stages, if not nil, are filled in for the call.
	Stages *trace.Stages
}

// Note stores the value of Deduplicated, if the caller asked for it.
func (o *WriteOptions) Note(deduplicated bool) {
	if o.Deduplicated != nil {
		*o.Deduplicated = deduplicated
	}
}

// ScanOptions are the options of one scan.
type ScanOptions struct {
	// KeysOnly omits the values, and does not read separated values.
	KeysOnly bool
	// Limit ends the scan after this many items; 0 means no limit.
	Limit uint64
	// Reverse walks from the end of the range to its start.
	Reverse bool
	// At is the version of a live snapshot; 0 reads the newest.
	At SeqNum
	// Fresh says how new that must be.
	Fresh Freshness
	// Budget, if not nil, has the Memory from which the scan reserves room for its
	// batches and, one at a time, for large values. What it holds when Next returns
	// belongs to the current item: the caller gives it back before it calls Next again.
	Budget *ReadBudget
}

// LargeValue: the value of an item of a scan that is longer, in bytes, has memory of its own. The
// scan does not use that again, so the receiver may keep the value, which nothing changes.
const LargeValue = 32 << 10

// Snapshot is a version of the whole store that stays readable until its lease ends or
// is released.
type Snapshot struct {
	ID      uint64
	Version SeqNum
	// Epoch is the random id of the opening of the store that Version belongs to. A
	// crash may lose versions that were read before it, and the same version means
	// different things in two copies of a store.
	Epoch uint64
	Lease time.Duration // counted from when it was granted
}
