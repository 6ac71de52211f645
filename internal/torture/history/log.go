package history

// Log is what one client recorded. The zero value is ready. Not safe for concurrent
// use.
//
// It is made for millions of Ops: their slices share large blocks.
type Log struct {
	ops    []Op
	reads  block[Read]
	scans  block[Scan]
	writes block[Write]
}

// Add appends an Op and copies its slices.
func (l *Log) Add(o Op) {
	o.Reads = l.reads.keep(o.Reads)
	o.Scans = l.scans.keep(o.Scans)
	for i := range o.Scans {
		o.Scans[i].Seen = l.reads.keep(o.Scans[i].Seen)
	}
	o.Writes = l.writes.keep(o.Writes)
	l.ops = append(l.ops, o)
}

// Ops returns the recorded Ops, borrowed until the next Add.
func (l *Log) Ops() []Op { return l.ops }

// block stores copies of slices next to each other.
type block[T any] struct{ free []T }

func (b *block[T]) keep(items []T) []T {
	if len(items) == 0 {
		return nil
	}
	if cap(b.free)-len(b.free) < len(items) {
		b.free = make([]T, 0, max(1024, len(items)))
	}
	from := len(b.free)
	b.free = append(b.free, items...)
	return b.free[from:len(b.free):len(b.free)]
}
