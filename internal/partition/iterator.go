package partition

import (
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
			sources = append(sources, r.newIterator())
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

func (r *run) newIterator() kv.Iterator {
	return r.metas.NewIterator(func(table int) (kv.Iterator, error) {
		return r.readers[table].NewIterator(sstable.IterOptions{FillCache: true}), nil
	})
}
