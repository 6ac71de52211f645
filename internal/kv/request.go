package kv

import "time"

// Lookup is one point read: the question and, once the read returned, the
// answer. The asker owns it and must not touch it in between.
type Lookup struct {
	Key  []byte
	Hash uint64 // keyhash.Sum(Key); set by the engine
	// Want says of which value the bytes are brought: any, by default.
	Want Want
	// Budget, if not nil, is shared with other reads of the same call: one that
	// finds it spent fails with ErrBudgetSpent.
	Budget *ReadBudget
	// Stages, if not nil, are filled in for the call. Only those of its first read are.
	Stages *Stages

	// Found tells a present key from an absent one; an empty value is a value.
	Found bool
	// Value is owned by the asker: it is a copy, in the memory that Value had before if
	// there is room in that.
	Value []byte
	// Omitted: the key was found, but its value was not wanted and is not in Value.
	Omitted bool
	Version SeqNum // that wrote the value; 0 if not found
	Expiry  uint64
	// ReadVersion is the version the answer is valid at, found or not.
	ReadVersion SeqNum
	// Err is set when this read alone failed, for example on a damaged block.
	Err error
}

// Question returns a Lookup that asks the same and has no answer yet.
func (l *Lookup) Question() Lookup {
	return Lookup{Key: l.Key, Hash: l.Hash, Want: l.Want, Budget: l.Budget, Stages: l.Stages}
}

// Want says of which value a read brings the bytes into memory. Of any other it finds
// the version and the expiry alone.
type Want int64

const (
	// WantAny brings every value. It is the zero Want.
	WantAny Want = 0
	// WantNone brings no value.
	WantNone Want = -1
)

// WantLength brings a value that has so many bytes, and no other.
func WantLength(bytes int) Want { return Want(bytes) + 1 }

// Takes reports whether a value of so many bytes is wanted.
func (w Want) Takes(bytes int) bool { return w == WantAny || w == WantLength(bytes) }

// Write is one independent write of one key: the question and, once the write
// returned, the answer. The slices of Op are borrowed until then.
type Write struct {
	Op         Op
	Hash       uint64 // keyhash.Sum(Op.Key); set by the engine
	Origin     Origin
	Durability Durability // DurabilityDefault: what the store is configured for
	// Stages, if not nil, are filled in for the call. Only those of its first write are.
	Stages *Stages

	// If, unless nil, must hold of the key, or the write fails with a
	// *ConditionError.
	If *Condition
	// Previous, unless nil, gets what the key held before the write, or what the
	// condition did not hold of.
	Previous *Lookup

	Version SeqNum // of this write, once acknowledged
	// Deduplicated: it had been applied before, as Version, and was not again.
	Deduplicated bool
	Err          error
}

// WriteOptions are the choices of one atomic batch.
type WriteOptions struct {
	Durability Durability // DurabilityDefault: what the store is configured for
	Origin     Origin
	// Deduplicated, unless nil, is set if the batch had been applied before and was
	// not again.
	Deduplicated *bool
	// Stages, if not nil, are filled in for the call.
	Stages *Stages
}

// Note says whether the batch had been applied before to whoever asked.
func (o *WriteOptions) Note(deduplicated bool) {
	if o.Deduplicated != nil {
		*o.Deduplicated = deduplicated
	}
}

// ScanOptions are the choices of one scan.
type ScanOptions struct {
	// KeysOnly leaves the values out, and spares reading those that are kept apart
	// from their keys.
	KeysOnly bool
	// Limit ends the scan after this many items; 0 means no limit.
	Limit uint64
	// Reverse walks from the end of the range to its start.
	Reverse bool
	// At is the version of a live snapshot; 0 reads the newest.
	At SeqNum
	// Budget, if not nil, has the Memory that the scan takes its batches from, and large
	// values, one at a time. What it holds when Next returns is of the current item: the
	// caller returns it before the next one.
	Budget *ReadBudget
}

// Snapshot is a version of the whole store that stays readable under a lease:
// until the lease ends or is given back.
type Snapshot struct {
	ID      uint64
	Version SeqNum
	// Epoch is the random id of the opening of the store that Version belongs to. A
	// crash may take away what was read before it, and the numbers of two copies of a
	// store mean different things.
	Epoch uint64
	Lease time.Duration // from when it was granted
}
