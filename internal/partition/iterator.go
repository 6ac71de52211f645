package partition

import (
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/sstable"
)

// NewIterator returns what a reader sees at a version, which must be that of a
// live snapshot, and at a time of the store's clock: for each key its newest entry
// of at most that version, without keys that are deleted or have expired. It keeps
// the files and memtables it reads until Close.
func (p *Partition) NewIterator(at kv.SeqNum, now uint64) kv.Iterator {
	s := p.acquire()
	if s.closed {
		s.release()
		return mergeiter.Failed(p.closedError())
	}
	view := mergeiter.View{At: at, Now: now, Covers: s.covers()}
	return &stateIterator{Iterator: mergeiter.Newest(mergeiter.New(s.iterators()...), view), state: s}
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

func (r *run) newIterator() kv.Iterator {
	return r.metas.NewIterator(func(table int) (kv.Iterator, error) {
		return r.readers[table].NewIterator(sstable.IterOptions{FillCache: true}), nil
	})
}
