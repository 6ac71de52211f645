package partition

import (
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/scanbatch"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
)

// Walk returns what a reader sees of one partition, batch after batch, in the order of keys
// or backward.
//
// The zero value is ready for Open; after Close it can be opened again and reuses its
// memory. Used by one goroutine at a time.
type Walk struct {
	p       *Partition
	fetches []valuefile.Fetch
	state   *readState // nil: closed
	err     error      // why there was nothing to open, or why the walk ended
	damage  error      // what lies at the end of the walk: see stopAtDamage
	visible mergeiter.Visible
	sources []kv.Iterator
	runs    []*runWalk
}

// Open begins a walk over what a reader sees at a version, which must be that of a
// live snapshot, and at a time of the store's clock: for each key its newest entry
// of at most that version, without keys that are deleted or have expired. It keeps
// the files and memtables it reads until Close, and bounds.
func (w *Walk) Open(p *Partition, at kv.SeqNum, now uint64, bounds kv.Range, reverse bool) {
	s := p.acquire()
	if s.closed {
		s.release()
		w.err = p.closedError()
		return
	}
	w.p, w.state, w.err = p, s, nil
	bounds, w.damage = s.levels.stopAtDamage(bounds, reverse)
	w.sources = w.sources[:0]
	for t := range s.memtables() {
		if t.Len() > 0 {
			w.sources = append(w.sources, t.NewIterator())
		}
	}
	used := 0
	s.levels.runs(func(r *run) bool {
		part := r.within(bounds)
		if len(part.readers) == 0 {
			return true
		}
		if used == len(w.runs) {
			w.runs = append(w.runs, newRunWalk())
		}
		w.runs[used].open(part)
		w.sources = append(w.sources, w.runs[used])
		used++
		return true
	})
	w.visible.Init(scanbatch.View{At: at, Now: now, Covers: s.covers()}, bounds, reverse, w.sources)
}

// Fill adds what comes next to b, until b is full. It returns false at the end and
// on an error, for good: see Err. What b holds then came before it.
func (w *Walk) Fill(b *scanbatch.Batch) (more bool) {
	if w.err != nil {
		return false
	}
	more = w.visible.Fill(b)
	if !more && w.visible.Err() == nil {
		w.err = w.damage
	}
	return (len(b.Apart) == 0 || w.readApart(b)) && more
}

// readApart reads the values of a batch that are apart, together. It reports false on
// an error, and then leaves what comes before.
func (w *Walk) readApart(b *scanbatch.Batch) bool {
	n := len(b.Apart)
	w.fetches = slices.Grow(w.fetches[:0], n)[:n] // with the room of earlier values
	for k, i := range b.Apart {
		p, _ := kv.ParseValuePointer(b.Items[i].Value) // sstable has checked it
		w.fetches[k].Pointer, w.fetches[k].Err = p, nil
	}
	w.p.values.ReadBatch(w.fetches)
	for k, i := range b.Apart {
		f := &w.fetches[k]
		if f.Err != nil {
			b.Items, w.err = b.Items[:i], f.Err
			return false
		}
		b.Replace(i, f.Value)
		if cap(f.Value) > maxKeptValue {
			f.Value = nil
		}
	}
	return true
}

// maxKeptValue bounds the memory that a walk keeps for each value of its next batch.
const maxKeptValue = 4 << 10

// Err returns why Fill returned false, nil at the end.
func (w *Walk) Err() error {
	if w.err != nil {
		return w.err
	}
	return w.visible.Err()
}

// Close lets go of files and memtables. Idempotent.
func (w *Walk) Close() error {
	if w.state == nil {
		return w.err
	}
	if err := w.visible.Close(); w.err == nil {
		w.err = err
	}
	if errors.Is(w.err, kv.ErrCorrupt) {
		w.p.corrupt(w.err)
	}
	clear(w.sources)
	w.state.release()
	w.state = nil
	return w.err
}

// runWalk is the iterator over a run, in memory that serves many walks.
type runWalk struct {
	manifest.RunIterator
	run   run
	table sstable.Iterator
	enter func(table int) (kv.Iterator, error)
}

var _ scanbatch.Filler = (*runWalk)(nil)

func newRunWalk() *runWalk {
	w := &runWalk{}
	w.enter = func(table int) (kv.Iterator, error) {
		w.table.Init(w.run.readers[table], sstable.IterOptions{FillCache: true})
		return &w.table, nil
	}
	return w
}

func (w *runWalk) open(r run) {
	w.run = r
	w.Init(r.metas, w.enter)
}

// Fill implements scanbatch.Filler, one table after the other.
func (w *runWalk) Fill(b *scanbatch.Batch, v *scanbatch.View, bound []byte) (passed int) {
	passed = w.table.Fill(b, v, bound)
	w.Passed(passed)
	return passed
}

// Close lets the run go.
func (w *runWalk) Close() error {
	err := w.RunIterator.Close()
	w.run = run{}
	w.Init(nil, nil)
	return err
}

func (r *run) newIterator() kv.Iterator {
	return r.metas.NewIterator(func(table int) (kv.Iterator, error) {
		return r.readers[table].NewIterator(sstable.IterOptions{FillCache: true}), nil
	})
}
