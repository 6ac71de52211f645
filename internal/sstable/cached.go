package sstable

import (
	"runtime"

	"github.com/kvd-db/kvd/internal/kv"
)

// Ask is a query for one file. A caller that searches many files for different queries
// collects the asks in a slice; no two may have the same query.
type Ask struct {
	Reader *Reader
	Query  *Query
	// Values, if not nil, may have the value if it is separated. Searched: it does not, unless
	// the block is not cached either, as GetCached has found just before.
	Values   *Values
	Searched bool
	// Missing: the file may have the answer, but not in memory. The query is unchanged.
	Missing bool

	at      int       // the data block that may have the answer, -1 if the query is answered
	covered kv.SeqNum // as Reader.locate returns it
	block   block     // only its contents until it is parsed
}

// GetCached answers from memory alone, as Get would: if it needs a block that is not
// cached, or a separated value that Values does not have, the ask becomes Missing.
//
// It makes several passes over the asks: to touch the filter lines, to find the blocks,
// to touch their fronts, to touch the entries that the fronts lead to, and to search.
// Each pass waits for many memory loads at once, where Get waits for one after the other.
func GetCached(asks []Ask) { getCached(asks, false) }

// getCached is GetCached; with apart set, a query whose value is separated is answered
// with the pointer.
func getCached(asks []Ask, apart bool) {
	var touched byte // keeps the compiler from dropping the loads
	for len(asks) > 0 {
		some := asks[:min(len(asks), asksTogether)]
		asks = asks[len(some):]
		if len(some) > 1 {
			for i := range some {
				touched += some[i].Reader.filter.touch(some[i].Query.Hash)
			}
		}
		for i := range some {
			some[i].locate()
		}
		for i := range some {
			some[i].fetch()
		}
		for i := range some {
			if a := &some[i]; a.block.data != nil {
				touched += touchFront(a.block.data)
			}
		}
		for i := range some {
			a := &some[i]
			if a.block.data == nil {
				continue
			}
			a.block = cachedBlock(a.block.data)
			if len(some) > 1 {
				touched += a.block.touchEntry(a.Query.Hash)
			}
		}
		for i := range some {
			some[i].search(apart)
		}
	}
	runtime.KeepAlive(touched)
}

// asksTogether is how many asks one pass handles. Guessed: with some ten cache lines
// each, more would evict each other from the processor's first-level cache.
const asksTogether = 32

// locate finds the block that may have the answer, or answers that there is none.
func (a *Ask) locate() {
	a.Missing, a.at, a.block = false, -1, block{}
	if a.Query.Done {
		return
	}
	if a.at, a.covered = a.Reader.locate(a.Query); a.at < 0 {
		a.Query.answer(nil, nil, false, a.covered)
	}
}

// fetch sets the contents of the block, if it is cached.
func (a *Ask) fetch() {
	if a.at >= 0 {
		a.block.data = a.Reader.cache.hit(a.at)
		a.Missing = a.block.data == nil
	}
}

// search answers the query from its block, if fetch found it.
func (a *Ask) search(apart bool) {
	if a.block.data == nil {
		return
	}
	var h header
	found, ok := a.block.find(a.Query.Key, a.Query.Hash, a.Query.At, &h)
	var value []byte
	if found && h.apart && h.seq >= a.covered && !apart {
		p, wanted := a.wantsApart(&h)
		if value = a.Values.get(p, wanted); wanted && value == nil {
			a.Missing = true
			a.block = block{}
			return
		}
	}
	if !ok || !a.Query.answer(&a.block, &h, found, a.covered) {
		a.Query.fail(a.Reader.malformed(a.at))
	} else if a.Query.Apart && value != nil {
		a.Query.receive(value)
	} else if a.Query.Apart && !a.Searched {
		a.Values.answer(a.Query)
	}
	a.block = block{}
}

// wantsApart returns the pointer of an entry, and whether the query needs the bytes of its
// value. For a malformed pointer it reports true, so that the caller reads the value and
// meets the error.
func (a *Ask) wantsApart(h *header) (p kv.ValuePointer, wants bool) {
	p, ok := kv.ParseValuePointer(a.block.value(h))
	return p, !ok || a.Query.Want.Takes(int(p.Length))
}
