package partition

import (
	"bytes"
	"iter"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/sstable"
)

// readState is all that a read looks at: immutable but for the writes that the
// active memtable still takes, and kept alive by references. In other texts: a
// super version. The partition itself holds one reference to the current one.
type readState struct {
	active *memtable.Table
	sealed []sealedTable // newest first
	levels *levels
	closed bool // the last one: nothing may be read from it any more
	refs   atomic.Int64
	alive  *sync.WaitGroup // told when the last reference goes; nil for the closed state
}

// newReadState takes over one reference to levels and has one itself.
func (p *Partition) newReadState(active *memtable.Table, sealed []sealedTable, l *levels) *readState {
	p.states.Add(1)
	s := &readState{active: active, sealed: sealed, levels: l, alive: &p.states}
	s.refs.Store(1)
	return s
}

// acquire returns the current state with a reference of the caller's own.
func (p *Partition) acquire() *readState {
	for {
		s := p.state.Load()
		// A state that has reached zero is being torn down; its successor is
		// already in place.
		for n := s.refs.Load(); n > 0; n = s.refs.Load() {
			if s.refs.CompareAndSwap(n, n+1) {
				return s
			}
		}
	}
}

// acquireVisible returns the current state, with a reference of the caller's own, the
// newest number that may be read from it, and what may be read beyond that number by a
// reader of single keys: see "A read" in the package comment.
func (p *Partition) acquireVisible() (*readState, kv.SeqNum, Early) {
	for {
		s := p.acquire()
		at, beyond := p.visible.view()
		if beyond != nil {
			// What is flushed is visible, over all partitions, and early finds it in no
			// memtable; published may not say so yet.
			at = max(at, s.levels.version.FlushedSeq)
		}
		if p.state.Load() == s {
			return s, at, beyond
		}
		// A memtable was sealed in between: what was published meanwhile may be in the
		// next one, which s does not have.
		s.release()
	}
}

func (s *readState) release() {
	if s.refs.Add(-1) == 0 {
		s.levels.release()
		if s.alive != nil {
			s.alive.Done()
		}
	}
}

// memtables walks the memtables, newest first.
func (s *readState) memtables() iter.Seq[*memtable.Table] {
	return func(yield func(*memtable.Table) bool) {
		if !yield(s.active) {
			return
		}
		for i := range s.sealed {
			if !yield(s.sealed[i].table) {
				return
			}
		}
	}
}

// covers returns the range tombstones of everything in the state.
func (s *readState) covers() []*kv.RangeTombstones {
	var covers []*kv.RangeTombstones
	for t := range s.memtables() {
		if r := t.RangeTombstones(); r.Len() > 0 {
			covers = append(covers, r)
		}
	}
	return append(covers, s.levels.covers...)
}

// iterators returns one for each sorted source of the state that may hold keys of a range,
// newest first.
func (s *readState) iterators(bounds kv.Range) []kv.Iterator {
	var sources []kv.Iterator
	for t := range s.memtables() {
		if t.Len() > 0 {
			sources = append(sources, t.NewIterator())
		}
	}
	s.levels.runs(func(r *run) bool {
		if part := r.within(bounds); len(part.readers) > 0 {
			sources = append(sources, part.newIterator())
		}
		return true
	})
	return sources
}

// closeState replaces the current state by one that is never read and never torn
// down, so that a late caller always finds a state to acquire.
func (p *Partition) closeState() error {
	return p.replace(func(old *readState) *readState {
		last := &readState{active: old.active, levels: old.levels.acquire(), closed: true}
		last.refs.Store(1)
		return last
	})
}

// replace puts the state that derive makes in the place of the current one. derive
// must take a reference to the levels that it uses. It fails if the partition is
// closed: the closed state is the last one.
func (p *Partition) replace(derive func(old *readState) *readState) error {
	p.swap.Lock()
	old := p.state.Load()
	if old.closed {
		p.swap.Unlock()
		return p.closedError()
	}
	p.state.Store(derive(old))
	p.swap.Unlock()
	old.release()
	return nil
}

// levels are the open tables of one manifest version, shared by the read states
// that were current while it was.
type levels struct {
	version *manifest.Ref
	deltas  []run // newest first
	base    run
	covers  []*kv.RangeTombstones // of all tables that have some
	damaged []*sstable.Reader     // that could not be opened: see sstable.Damaged
	refs    atomic.Int64
}

// run is one sorted run with its readers, in the order of its keys.
type run struct {
	metas   manifest.Run
	readers []*sstable.Reader
}

// within returns the part of the run whose tables may hold keys of a range. What a walk over the
// range does not need cannot fail it.
func (r *run) within(bounds kv.Range) run {
	from, to := r.metas.Seek(bounds.Start), len(r.metas)
	if len(bounds.End) > 0 {
		to = max(from, sort.Search(to, func(i int) bool { return bytes.Compare(r.metas[i].Smallest, bounds.End) >= 0 }))
	}
	return run{metas: r.metas[from:to], readers: r.readers[from:to]}
}

// find returns the index of the table of the run that may hold key, -1 if none.
func (r *run) find(key []byte) int {
	i := r.metas.Seek(key)
	if i == len(r.metas) || bytes.Compare(key, r.metas[i].Smallest) < 0 {
		return -1
	}
	return i
}

func (l *levels) acquire() *levels {
	l.refs.Add(1)
	return l
}

func (l *levels) release() {
	if l.refs.Add(-1) == 0 {
		l.version.Release()
	}
}

// run returns the run that so many newer ones lie above, nil if there is none.
func (l *levels) run(depth int) *run {
	switch {
	case depth < len(l.deltas):
		return &l.deltas[depth]
	case depth == len(l.deltas):
		return &l.base
	}
	return nil
}

// runs calls f for every run, newest first, until it returns false.
func (l *levels) runs(f func(r *run) bool) {
	for i := range l.deltas {
		if !f(&l.deltas[i]) {
			return
		}
	}
	f(&l.base)
}
