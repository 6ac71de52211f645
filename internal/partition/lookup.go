package partition

import (
	"errors"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
)

// lookup is a set of point reads of one or more partitions that search the sources from
// newest to oldest. All reads take each step together, so that they wait for memory and
// disk together. It holds the read states until it is released, and its memory is reused.
type lookup struct {
	sections []section
	open     []openRead // what no memtable has answered, section by section
	asks     []sstable.Ask
	waited   bool // for the disk
}

// section is the reads of one partition.
type section struct {
	p     *Partition
	state *readState
	at    kv.SeqNum
	early Early         // seen beyond at
	now   func() uint64 // asked only for entries that expire
	reads []*kv.Lookup

	hits     int  // how many reads lookup.cached answered
	searched bool // the memtables of state have none of reads: see lookup.cached
	borrowed bool // the lookup that state belongs to outlives this one

	first, end int // its reads in lookup.open
}

// openRead is a read for the tables to answer.
type openRead struct {
	read  *kv.Lookup
	query sstable.Query
}

// errNotCached marks a query whose answer is not in memory, if only memory is searched.
var errNotCached = errors.New("not in memory")

var lookupPool = sync.Pool{New: func() any { return new(lookup) }}

func newLookup() *lookup { return lookupPool.Get().(*lookup) }

// release releases the read states.
func (l *lookup) release() {
	for i := range l.sections {
		if s := &l.sections[i]; !s.borrowed {
			s.state.release()
		}
	}
	clear(l.sections)
	clear(l.open) // the keys and values belong to the caller
	l.sections, l.open, l.waited = l.sections[:0], l.open[:0], false
	lookupPool.Put(l)
}

// add takes over the reference to the state of the section.
func (l *lookup) add(s section) { l.sections = append(l.sections, s) }

// addVisible adds reads of the newest visible version of a partition.
func (l *lookup) addVisible(p *Partition, reads []*kv.Lookup) {
	state, at, beyond := p.acquireVisible()
	l.add(section{p: p, state: state, at: at, early: beyond, now: p.opts.Now, reads: reads})
}

// run answers the reads: all of them, or, without the disk, those that memory can
// answer.
func (l *lookup) run(disk bool) {
	l.touchMemtables()
	for i := range l.sections {
		l.searchMemtables(&l.sections[i])
	}
	for depth := 0; l.gather(depth); depth++ {
		if disk {
			l.waited = sstable.GetBatch(l.asks) || l.waited
			continue
		}
		sstable.GetCached(l.asks)
		for i := range l.asks {
			if a := &l.asks[i]; a.Missing {
				a.Query.Done, a.Query.Err = true, errNotCached // no older table may answer
			}
		}
	}
	l.readApart()
	for i := range l.open {
		finish(&l.open[i])
	}
	for i := range l.sections {
		l.sections[i].settle()
	}
}

// readApart reads the separated values, those of each partition together.
func (l *lookup) readApart() {
	for rest := l.sections; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].p == rest[0].p {
			n++
		}
		l.waited = rest[0].p.readApart(l.open[rest[0].first:rest[n-1].end]) || l.waited
		rest = rest[n:]
	}
}

// cached answers what memory has, and leaves in each section the reads that it has not
// answered, for run. It reports whether it answered all.
func (l *lookup) cached() (whole bool) {
	l.run(false)
	whole = true
	for i := range l.sections {
		s := &l.sections[i]
		all := len(s.reads)
		s.reads, s.searched = l.unanswered(s), true
		s.hits = all - len(s.reads)
		whole = whole && len(s.reads) == 0
	}
	clear(l.open)
	l.open = l.open[:0]
	return whole
}

// touchMemtables makes the misses of the processor's caches overlap.
func (l *lookup) touchMemtables() {
	if len(l.sections) == 1 && len(l.sections[0].reads) == 1 {
		return
	}
	for i := range l.sections {
		s := &l.sections[i]
		if s.searched {
			continue
		}
		for t := range s.state.memtables() {
			t.Touch(s.reads)
		}
	}
}

// searchMemtables answers what memtables can and opens the others.
func (l *lookup) searchMemtables(s *section) {
	s.first = len(l.open)
	var e kv.Entry
	for _, r := range s.reads {
		value := r.Value[:0]
		*r = r.Question()
		r.Value, r.ReadVersion = value, s.at
		switch {
		case s.state.closed:
			*r = r.Question()
			r.Err = s.p.closedError()
		case r.Budget.Spent():
			refuse(r)
		case s.searched:
			l.ask(s, r)
		case s.early != nil && lookupEarly(s.state, r, s.at, s.early, &e):
			answer(r, &e)
			r.ReadVersion = e.Seq
		case lookupMemory(s.state, r, s.at, &e):
			answer(r, &e)
		default:
			l.ask(s, r)
		}
	}
	s.end = len(l.open)
}

// ask opens a read for the tables.
func (l *lookup) ask(s *section, r *kv.Lookup) {
	l.open = append(l.open, openRead{r, sstable.Query{
		Key: r.Key, Hash: r.Hash, At: s.at, Want: r.Want, Budget: r.Budget, Value: r.Value,
	}})
}

// gather collects what is to be asked of the run at this depth of each partition. It
// reports false if no run is left that has anything to answer.
func (l *lookup) gather(depth int) (more bool) {
	clear(l.asks)
	l.asks = l.asks[:0]
	for i := range l.sections {
		s := &l.sections[i]
		run := s.state.levels.run(depth)
		if run == nil {
			continue
		}
		for i := s.first; i < s.end; i++ {
			q := &l.open[i].query
			if q.Done {
				continue
			}
			more = true
			if table := run.find(q.Key); table >= 0 {
				l.asks = append(l.asks, sstable.Ask{Reader: run.readers[table], Query: q, Values: s.p.cached, Searched: s.searched})
			}
		}
	}
	return more
}

// finish turns the state of a query after the walk into the read's answer.
func finish(o *openRead) {
	r, q := o.read, &o.query
	switch {
	case q.Err != nil:
		r.Value, r.Err = nil, q.Err
	case q.Done && q.Kind == kv.KindPut:
		r.Found, r.Value, r.Version, r.Expiry, r.Omitted = true, q.Value, q.Seq, q.Expiry, q.Omitted
		if r.Omitted {
			r.Value = nil
		} else if r.Value == nil {
			r.Value = []byte{} // an empty value is a value
		}
	default:
		r.Value = nil
	}
}

// settle drops what has expired and reports damage.
func (s *section) settle() {
	for _, r := range s.reads {
		if r.Expiry != 0 && r.Expiry <= s.now() {
			at := r.ReadVersion
			*r = r.Question()
			r.ReadVersion = at
		}
		if r.Err != nil && errors.Is(r.Err, kv.ErrCorrupt) {
			s.p.corrupt(r.Err)
		}
	}
}

// unanswered returns the reads of a section that memory did not answer, in the memory of
// its reads.
func (l *lookup) unanswered(s *section) []*kv.Lookup {
	reads := s.reads[:0]
	for i := s.first; i < s.end; i++ {
		if o := &l.open[i]; o.query.Err == errNotCached {
			*o.read = o.read.Question()
			o.read.Value = o.query.Value
			reads = append(reads, o.read)
		}
	}
	return reads
}
