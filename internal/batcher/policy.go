package batcher

import "time"

// Policy says when a batch is cut and how much may wait for it.
type Policy struct {
	// MaxOps caps the operations of one batch. A single item with more is a batch
	// of its own. Zero means DefaultMaxOps.
	MaxOps int
	// MaxBytes caps the bytes of one batch likewise. Zero means DefaultMaxBytes.
	MaxBytes int
	// QueueBytes bounds what waits; a caller that does not fit waits for room.
	// Zero means DefaultQueueBytes.
	QueueBytes int
	// Linger is how long a batch that is not full waits for more. Zero, the
	// default, never waits.
	Linger time.Duration
}

const (
	// DefaultMaxOps: the work of one batch stays around a millisecond. Derived:
	// 1,024 operations at somewhat under a microsecond each.
	DefaultMaxOps = 1024
	// DefaultMaxBytes: one batch never outgrows a small part of a memtable.
	DefaultMaxBytes = 1 << 20
	// DefaultQueueBytes: a few batches. More would only be waiting time.
	DefaultQueueBytes = 8 << 20
	// MaxQueueWait is how long a caller waits for room before it is shed, when
	// its context allows more. Guessed: past a second, an error serves better.
	MaxQueueWait = time.Second
)

// withDefaults fills in what was left zero.
func (p Policy) withDefaults() Policy {
	if p.MaxOps <= 0 {
		p.MaxOps = DefaultMaxOps
	}
	if p.MaxBytes <= 0 {
		p.MaxBytes = DefaultMaxBytes
	}
	if p.QueueBytes <= 0 {
		p.QueueBytes = DefaultQueueBytes
	}
	return p
}

// size is what an item counts for.
type size struct{ ops, bytes int }

func (s size) plus(t size) size { return size{s.ops + t.ops, s.bytes + t.bytes} }

// cut returns how many of the queued items, from the first, make the next batch:
// as many as stay within the caps, and at least one.
func (p Policy) cut(queued []size) int {
	var sum size
	for i, s := range queued {
		sum.ops += s.ops
		sum.bytes += s.bytes
		if i > 0 && (sum.ops > p.MaxOps || sum.bytes > p.MaxBytes) {
			return i
		}
	}
	return len(queued)
}

// full reports whether a batch of this size gains nothing from waiting.
func (p Policy) full(s size) bool { return s.ops >= p.MaxOps || s.bytes >= p.MaxBytes }
