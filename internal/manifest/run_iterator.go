package manifest

import "github.com/kvd-db/kvd/internal/kv"

// NewIterator returns an iterator over all entries of the run. It calls open with the
// index of a table when it reaches the table, and closes the table before it opens the
// next.
//
// A table that ends with another number of entries than the manifest says is
// damage, not the end.
//
// Errors: those of open and of the tables; the first ends the walk for good.
// The iterator keeps the run until Close.
func (r Run) NewIterator(open func(table int) (kv.Iterator, error)) kv.Iterator {
	it := &RunIterator{}
	it.Init(r, open)
	return it
}

// RunIterator is the iterator that NewIterator returns, for callers that reuse its
// memory. The zero value is ready for Init.
type RunIterator struct {
	run  Run
	open func(table int) (kv.Iterator, error)

	table    int         // index of the current table
	it       kv.Iterator // over it; nil if none is open
	seen     uint64      // entries of the current table visited so far
	whole    bool        // the walk of the current table began at its first entry, or its last if backward
	backward bool
	err      error
	closed   bool
}

// Init makes r a new iterator over a run, as NewIterator does.
func (r *RunIterator) Init(run Run, open func(table int) (kv.Iterator, error)) {
	*r = RunIterator{run: run, open: open}
}

// Passed is called after the caller itself moved the iterator of the current table,
// past this many entries. It returns Valid().
func (r *RunIterator) Passed(entries int) bool {
	r.seen += uint64(entries)
	if r.it.Valid() {
		return true
	}
	r.seen-- // the current entry was counted already
	return r.moved(false)
}

func (r *RunIterator) Valid() bool      { return r.it != nil && r.it.Valid() }
func (r *RunIterator) Entry() *kv.Entry { return r.it.Entry() }
func (r *RunIterator) Err() error       { return r.err }

func (r *RunIterator) First() bool {
	r.backward = false
	return r.enter(0, kv.Iterator.First, true)
}

func (r *RunIterator) SeekGE(key []byte) bool {
	r.backward = false
	return r.enter(r.run.Seek(key), func(it kv.Iterator) bool { return it.SeekGE(key) }, false)
}

func (r *RunIterator) Next() bool {
	if !r.Valid() {
		return false
	}
	r.must(false)
	return r.moved(r.it.Next())
}

func (r *RunIterator) Last() bool {
	r.backward = true
	return r.enter(len(r.run)-1, kv.Iterator.Last, true)
}

func (r *RunIterator) SeekLT(key []byte) bool {
	r.backward = true
	i := r.run.Seek(key)
	if i == len(r.run) || string(r.run[i].Smallest) >= string(key) {
		i-- // all of table i is at or after key
	}
	return r.enter(i, func(it kv.Iterator) bool { return it.SeekLT(key) }, false)
}

func (r *RunIterator) Prev() bool {
	if !r.Valid() {
		return false
	}
	r.must(true)
	return r.moved(r.it.Prev())
}

// must panics if the walk goes the other way.
func (r *RunIterator) must(backward bool) {
	if r.backward != backward {
		panic("manifest: a walk over a run changed direction without being positioned again")
	}
}

// enter opens table i and moves to where the walk begins.
func (r *RunIterator) enter(i int, move func(kv.Iterator) bool, whole bool) bool {
	if !r.leave() || r.closed || i < 0 || i >= len(r.run) {
		return false
	}
	it, err := r.open(i)
	if err != nil {
		r.err = err
		return false
	}
	r.table, r.it, r.seen, r.whole = i, it, 0, whole
	return r.moved(move(it))
}

// moved evaluates a move of the table's iterator, and continues with the
// next table if this one has ended.
func (r *RunIterator) moved(valid bool) bool {
	if valid {
		r.seen++
		return true
	}
	if err := r.it.Err(); err != nil {
		r.err = err
		return false
	}
	if t := &r.run[r.table]; r.whole && r.seen != t.Entries {
		r.err = kv.Corruptf(TableName(t.Num), -1, "table ends after %d entries, the manifest says %d", r.seen, t.Entries)
		return r.leave()
	}
	if r.backward {
		return r.enter(r.table-1, kv.Iterator.Last, true)
	}
	return r.enter(r.table+1, kv.Iterator.First, true)
}

// leave closes the current table and reports whether the walk may continue.
func (r *RunIterator) leave() bool {
	if r.it != nil {
		if err := r.it.Close(); r.err == nil {
			r.err = err
		}
		r.it = nil
	}
	return r.err == nil
}

func (r *RunIterator) Close() error {
	r.closed = true
	r.leave()
	return r.err
}
