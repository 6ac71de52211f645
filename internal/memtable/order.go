package memtable

import (
	"bytes"
	"cmp"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
)

// ref is the address of a record with the first bytes of its key, so that most
// comparisons read no record.
type ref struct {
	word    uint64 // the first 8 bytes of the key, big-endian, padded with zeros
	address uint64
}

const refBytes = 16

// run is a sorted part of the table. It never changes: iterators share it.
type run []ref

// growth: two adjacent runs are merged unless the first is at least this many times
// larger than the second. With n entries there are at most log8(n) runs, and calling
// runs after every single Add moves a ref 8*log8(n) times at most.
const growth = 8

// order holds the runs sorted so far. Nothing is sorted before the first call of runs.
type order struct {
	mu struct {
		sync.Mutex
		runs []run  // largest first
		next uint64 // address of the first record that is in no run
	}
}

func (o *order) init() { o.mu.next = firstAddress }

// runs returns sorted runs that hold every published record once; a single run
// if whole is set.
//
// count, a lower bound of the number of records, is a hint of how much to allocate.
func (o *order) runs(a *arena, count int, whole bool) []run {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.mu.runs {
		count -= len(r)
	}
	fresh := make(run, 0, max(0, count))
	o.mu.next = a.walk(o.mu.next, func(at uint64, r record) bool {
		fresh = append(fresh, ref{word: kv.KeyWord(r.key(), 0), address: at})
		return true
	})
	if len(fresh) > 0 {
		a.sort(fresh)
		o.mu.runs = append(o.mu.runs, fresh)
	}
	for n := len(o.mu.runs); n > 1 && (whole || len(o.mu.runs[n-2]) < growth*len(o.mu.runs[n-1])); n-- {
		o.mu.runs[n-2] = a.merge(o.mu.runs[n-2], o.mu.runs[n-1])
		o.mu.runs[n-1] = nil
		o.mu.runs = o.mu.runs[:n-1]
	}
	return append([]run(nil), o.mu.runs...)
}

// compare orders refs as kv.Compare does; equal ones by age, latest first. The words
// of both must be read at the same depth, with equal bytes before it.
func (a *arena) compare(x, y ref) int {
	if x.word != y.word {
		return cmp.Compare(x.word, y.word)
	}
	rx, ry := a.record(x.address), a.record(y.address)
	if c := bytes.Compare(rx.key(), ry.key()); c != 0 {
		return c
	}
	if c := cmp.Compare(ry.seq(), rx.seq()); c != 0 {
		return c
	}
	return cmp.Compare(y.address, x.address)
}

func (a *arena) merge(x, y run) run {
	merged := make(run, 0, len(x)+len(y))
	for len(x) > 0 && len(y) > 0 {
		if a.compare(x[0], y[0]) < 0 {
			merged = append(merged, x[0])
			x = x[1:]
		} else {
			merged = append(merged, y[0])
			y = y[1:]
		}
	}
	return append(append(merged, x...), y...)
}
