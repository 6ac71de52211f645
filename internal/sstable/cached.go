package sstable

import (
	"runtime"

	"github.com/kvd-db/kvd/internal/kv"
)

// Ask is a query for one file. Whoever asks many files at once, for different queries,
// gathers the asks; no two may have the same query.
type Ask struct {
	Reader *Reader
	Query  *Query
	// Missing: the answer, if the file has one, is not in memory. The query is as it was.
	Missing bool

	at      int       // the data block that has the answer, -1 if it is answered
	covered kv.SeqNum // as Reader.locate returns it
	block   block     // its contents at first, and then parsed
}

// GetCached answers from memory alone, as Get would: with a block that is not cached, or
// a value that is apart, the ask is Missing.
//
// It goes over the asks several times: to touch what the filters will look at, to find
// the blocks, to touch their fronts, to touch the entries that the fronts lead to, and
// to search. All but the last wait for memory at many places at once, where Get waits
// at one after the other.
func GetCached(asks []Ask) { getCached(asks, false) }

// getCached is GetCached, unless values that are apart answer, too.
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
			a.block, _ = parseBlock(a.block.data) // it is one, or would not be cached
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

// asksTogether is how many asks are under way together. A guess: more would push each
// other out of the first cache of the processor, with some ten lines each.
const asksTogether = 32

// locate finds the block that has the answer, or says that there is none.
func (a *Ask) locate() {
	a.Missing, a.at, a.block = false, -1, block{}
	if a.Query.Done {
		return
	}
	if a.at, a.covered = a.Reader.locate(a.Query); a.at < 0 {
		a.Query.answer(nil, nil, false, a.covered)
	}
}

// fetch brings the contents of the block, if it is cached.
func (a *Ask) fetch() {
	if a.at >= 0 {
		a.block.data = a.Reader.cache.hit(a.at)
		a.Missing = a.block.data == nil
	}
}

// search answers the query from its block, if that is there.
func (a *Ask) search(apart bool) {
	if a.block.data == nil {
		return
	}
	var h header
	found, ok := a.block.find(a.Query.Key, a.Query.Hash, a.Query.At, &h)
	if found && h.apart && h.seq >= a.covered && !apart && a.wantsApart(&h) {
		a.Missing = true
	} else if !ok || !a.Query.answer(&a.block, &h, found, a.covered) {
		a.Query.fail(a.Reader.malformed(a.at))
	}
	a.block = block{}
}

// wantsApart reports whether the query needs the bytes of a value that is apart. A
// pointer that cannot be read is left to whoever reads the value.
func (a *Ask) wantsApart(h *header) bool {
	if a.Query.Want == kv.WantAny {
		return true
	}
	p, ok := kv.ParseValuePointer(a.block.value(h))
	return !ok || a.Query.Want.Takes(int(p.Length))
}
