package memtable

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
)

// ref is the address of a record with eight bytes of its key, so that most comparisons
// read no record. The bytes are those after the prefix that all keys share: keys of one
// application often begin alike, and equal words would decide nothing.
type ref struct {
	word    uint64 // kv.KeyWord of the key
	address uint64
}

const refBytes = 16

// run is a sorted part of the table. It never changes: iterators share it.
type run []ref

// sorted holds every record that the table had at some time once, in runs.
type sorted struct {
	runs   []run  // largest first
	prefix []byte // of every key; the words of all refs are those after it
}

// growth: two adjacent runs are merged unless the first is at least this many times
// larger than the second. With n entries there are at most log8(n) runs, and calling
// runs after every single Add moves a ref 8*log8(n) times at most.
const growth = 8

// order holds the runs sorted so far. Nothing is sorted before the first call of runs.
type order struct {
	mu struct {
		sync.Mutex
		sorted
		next   uint64 // address of the first record that is in no run
		reread int    // refs whose words were read again because the prefix became shorter
	}
}

func (o *order) init() { o.mu.next = firstAddress }

// runs returns sorted runs that hold every published record once; a single run
// if whole is set.
//
// count, a lower bound of the number of records, is a hint of how much to allocate.
func (o *order) runs(a *arena, count int, whole bool) sorted {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.mu.runs {
		count -= len(r)
	}
	if fresh := o.readLocked(a, count); len(fresh) > 0 {
		a.sort(fresh, len(o.mu.prefix))
		o.mu.runs = append(o.mu.runs, fresh)
	}
	for n := len(o.mu.runs); n > 1 && (whole || len(o.mu.runs[n-2]) < growth*len(o.mu.runs[n-1])); n-- {
		o.mu.runs[n-2] = a.merge(o.mu.runs[n-2], o.mu.runs[n-1])
		o.mu.runs[n-1] = nil
		o.mu.runs = o.mu.runs[:n-1]
	}
	return sorted{runs: append([]run(nil), o.mu.runs...), prefix: o.mu.prefix}
}

// readLocked returns refs of the records that are in no run, some count of them, in the
// order of Add.
func (o *order) readLocked(a *arena, count int) run {
	refs := make(run, 0, max(0, count))
	if len(o.mu.runs) == 0 {
		o.mu.prefix = a.guessPrefix()
	}
	prefix := o.mu.prefix
	o.mu.next = a.walk(o.mu.next, func(at uint64, r record) bool {
		key := r.key()
		if !bytes.HasPrefix(key, prefix) {
			prefix = o.shortenLocked(a, refs, kv.CommonPrefix(key, prefix))
		}
		refs = append(refs, ref{word: kv.KeyWord(key, len(prefix)), address: at})
		return true
	})
	return refs
}

// rereads bounds how many words are read again for each ref on average, so that keys
// which share less and less cannot make the order slow.
const rereads = 4

// shortenLocked shortens the prefix to n bytes, or, if too many words have been read
// again, to none. It returns the prefix, and reads the words of all runs and refs again.
// Runs that iterators share stay as they are.
func (o *order) shortenLocked(a *arena, refs run, n int) []byte {
	total := len(refs)
	for _, r := range o.mu.runs {
		total += len(r)
	}
	if o.mu.reread += total; o.mu.reread > rereads*total {
		n = 0
	}
	o.mu.prefix = o.mu.prefix[:n:n]
	for i, r := range o.mu.runs {
		o.mu.runs[i] = slices.Clone(r)
		a.readWords(o.mu.runs[i], n)
	}
	a.readWords(refs, n)
	return o.mu.prefix
}

// readWords sets the words of refs to those of their keys at the depth.
func (a *arena) readWords(refs run, depth int) {
	for i := range refs {
		refs[i].word = kv.KeyWord(a.record(refs[i].address).key(), depth)
	}
}

// guessKeys is how many keys guessPrefix reads. More would make a wrong guess rarer, and a
// walk over many records longer; a wrong guess costs one more reading of the words.
const guessKeys = 64

// guessPrefix returns what the first keys of the table have in common, borrowed from a
// record.
func (a *arena) guessPrefix() []byte {
	var prefix []byte
	n := 0
	a.walk(firstAddress, func(_ uint64, r record) bool {
		if key := r.key(); n == 0 {
			prefix = key
		} else {
			prefix = key[:kv.CommonPrefix(prefix, key)]
		}
		n++
		return n < guessKeys && len(prefix) > 0
	})
	return prefix[:len(prefix):len(prefix)]
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
