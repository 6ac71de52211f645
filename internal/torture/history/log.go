package history

// Log is what one client wrote down. It is used by one goroutine at a time. The
// zero value is ready.
//
// It is made for millions of Ops: what they hold lies in large blocks.
type Log struct {
	ops    []Op
	reads  block[Read]
	scans  block[Scan]
	writes block[Write]
}

// Add copies an Op and all that it holds to the end of the log.
func (l *Log) Add(o Op) {
	o.Reads = l.reads.keep(o.Reads)
	o.Scans = l.scans.keep(o.Scans)
	for i := range o.Scans {
		o.Scans[i].Seen = l.reads.keep(o.Scans[i].Seen)
	}
	o.Writes = l.writes.keep(o.Writes)
	l.ops = append(l.ops, o)
}

// Ops returns what was written down, borrowed until the next Add.
func (l *Log) Ops() []Op { return l.ops }

// block hands out copies that lie side by side.
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
