package partition

import (
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/sstable"
)

// NewIterator returns what is visible at a version, which must be that of a live
// snapshot: for each key its newest entry of at most that version, deleted keys
// left out. It keeps the files and memtables it reads until Close.
func (p *Partition) NewIterator(at kv.SeqNum) kv.Iterator {
	s := p.acquire()
	sources := []kv.Iterator{s.active.NewIterator()}
	for i := range s.sealed {
		sources = append(sources, s.sealed[i].table.NewIterator())
	}
	s.levels.runs(func(r *run) bool {
		if len(r.readers) > 0 {
			sources = append(sources, r.newIterator(sstable.IterOptions{FillCache: true}))
		}
		return true
	})
	return &stateIterator{Iterator: mergeiter.Newest(mergeiter.New(sources...), at), state: s}
}

// stateIterator releases the read state when it is closed.
type stateIterator struct {
	kv.Iterator
	state *readState
}

func (it *stateIterator) Close() error {
	err := it.Iterator.Close()
	if it.state != nil {
		it.state.release()
		it.state = nil
	}
	return err
}

// runIterator walks the tables of one run one after the other, opening each when
// it gets there.
type runIterator struct {
	run     *run
	options sstable.IterOptions
	next    int         // table behind the current one
	table   kv.Iterator // of table next-1; nil before the first move and at the end
	err     error
}

func (r *run) newIterator(o sstable.IterOptions) kv.Iterator {
	if len(r.readers) == 1 {
		return r.readers[0].NewIterator(o)
	}
	return &runIterator{run: r, options: o}
}

func (it *runIterator) First() bool {
	it.next = 0
	return it.enter() && (it.table.First() || it.advance())
}

func (it *runIterator) SeekGE(key []byte) bool {
	it.next = it.run.metas.Seek(key)
	return it.enter() && (it.table.SeekGE(key) || it.advance())
}

func (it *runIterator) Next() bool {
	return it.Valid() && (it.table.Next() || it.advance())
}

// advance moves to the first entry of the following tables. It stops at an error
// of the current one.
func (it *runIterator) advance() bool {
	for it.table != nil && it.table.Err() == nil && it.enter() {
		if it.table.First() {
			return true
		}
	}
	return false
}

// enter closes the current table and opens table next. It reports false when
// there is none, or on an error.
func (it *runIterator) enter() bool {
	if it.leave(); it.err != nil || it.next == len(it.run.readers) {
		return false
	}
	it.table = it.run.readers[it.next].NewIterator(it.options)
	it.next++
	return true
}

func (it *runIterator) leave() {
	if it.table != nil {
		it.err = errors.Join(it.err, it.table.Close())
		it.table = nil
	}
}

func (it *runIterator) Valid() bool      { return it.table != nil && it.table.Valid() }
func (it *runIterator) Entry() *kv.Entry { return it.table.Entry() }

func (it *runIterator) Err() error {
	if it.table != nil {
		return errors.Join(it.err, it.table.Err())
	}
	return it.err
}

func (it *runIterator) Close() error {
	it.leave()
	return it.err
}
