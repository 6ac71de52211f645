package batcher

import "time"

// Policy says when a batch is cut and how many bytes may queue for it.
type Policy struct {
	// MaxOps caps the operations of one batch. A single item with more operations forms
	// a batch of its own. Zero means DefaultMaxOps.
	MaxOps int
	// MaxBytes caps the bytes of one batch in the same way. Zero means DefaultMaxBytes.
	MaxBytes int
	// QueueBytes bounds the queued bytes; a caller whose item does not fit waits for
	// room. Zero means DefaultQueueBytes.
	QueueBytes int
	// Linger is how long a batch that is not full waits for more items. Zero, the
	// default, never waits.
	Linger time.Duration
	// Runners is how many batches of a Combiner are served at a time. Zero means the number
	// that the Combiner's owner chooses.
	Runners int
	// Alone lets each caller of a Combiner serve its own item at once, however many others
	// do, for comparison. An Inbox ignores it.
	Alone bool
}

const (
	// DefaultMaxOps keeps the work of one batch at about a millisecond. Derived: 1,024
	// operations at somewhat under a microsecond each.
	DefaultMaxOps = 1024
	// DefaultMaxBytes keeps one batch to a small part of a memtable.
	DefaultMaxBytes = 1 << 20
	// DefaultQueueBytes is a few batches. More would only add waiting time.
	DefaultQueueBytes = 8 << 20
	// MaxQueueWait is how long a caller waits for room, if its context allows, in all inboxes
	// together, before it is rejected. Guessed: after a second, an error is more useful than waiting.
	MaxQueueWait = time.Second
)

// withDefaults replaces zero fields by their defaults.
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

// size is the size of an item or of several.
type size struct{ ops, bytes int }

func (s size) plus(t size) size { return size{s.ops + t.ops, s.bytes + t.bytes} }

// cut returns how many queued items, from the first on, form the next batch: as many as
// stay within the caps, and at least one.
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

// full reports whether a batch of this size should not wait for more.
func (p Policy) full(s size) bool { return s.ops >= p.MaxOps || s.bytes >= p.MaxBytes }
