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

// Keys returns the number of keys that a Check of the Log needs.
func (l *Log) Keys() int {
	last := Key(0)
	for i := range l.ops {
		o := &l.ops[i]
		for r := range o.seen() {
			last = max(last, r.Key)
		}
		for j := range o.Scans {
			last = max(last, o.Scans[j].To)
		}
		for j := range o.Writes {
			last = max(last, o.Writes[j].end())
		}
	}
	return int(last) + 1
}

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
