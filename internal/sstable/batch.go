package sstable

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// joinGap is the most bytes that nobody asked for between two blocks that
	// one read fetches: about a block, which costs less than another read.
	joinGap = 4 << 10
	// maxRunBytes bounds one joined read, and so the buffer for it.
	maxRunBytes = 256 << 10
	// readDepth is how many reads of one batch are under way at once. A guess
	// between what one disk queue takes and what a batch may cost in goroutines.
	readDepth = 8
	// slowRead tells a read that waited for a disk from one that the page cache
	// served: the latter take 2 to 10 us, a flash disk 60 us or more. Reads that
	// do not wait are faster one after the other than on several goroutines.
	slowRead = 40 * time.Microsecond
)

// batch is the scratch memory of one GetBatch.
type batch struct {
	r       *Reader
	queries []Query
	probes  []probe // the queries that need a block, by block
	cached  []found // the groups whose block is cached, by block
	missing []group // the groups whose block is not cached, by block
	runs    []run
	next    atomic.Int32 // run to take
	touched byte         // what was touched, so that the reads are not optimized away
}

// probe is a query that this file may answer from a data block.
type probe struct {
	block   int32
	query   int32
	covered kv.SeqNum // as locate returns it
}

// group is the probes of one block: probes[first:end].
type group struct {
	block, first, end int32
}

// found is a group with the contents of its block.
type found struct {
	group
	contents []byte
	block    block // once they are parsed; with no entries if no writer makes it
}

// run is missing groups that one read fetches: missing[first:end].
type run struct {
	first, end int32
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// GetBatch does for every query what Get does for one, in one walk: all of them
// ask the filter and the index; each block is looked up once; blocks that are
// not cached are read in the order of the file, neighbours by one read, and
// distant ones at the same time if the disk is what they wait for. A damaged block
// fails the queries that need it and no others.
//
// Cost: at most one read per distinct block; up to seven goroutines besides the
// caller's, none unless two or more reads are needed and reads of this file were
// slow of late.
func (r *Reader) GetBatch(queries []Query) {
	b := batchPool.Get().(*batch)
	b.r, b.queries = r, queries
	b.locate()
	b.searchCached()
	b.planRuns()
	b.readRuns()
	b.release()
}

// locate finds the block for each query, and orders the probes by block.
func (b *batch) locate() {
	for i := range b.queries {
		q := &b.queries[i]
		if q.Done {
			continue
		}
		block, covered := b.r.locate(q)
		if block < 0 {
			q.answer(nil, nil, false, covered)
			continue
		}
		b.probes = append(b.probes, probe{block: int32(block), query: int32(i), covered: covered})
	}
	slices.SortFunc(b.probes, func(x, y probe) int { return cmp.Compare(x.block, y.block) })
}

// searchCached answers what it can from cached blocks and gathers the others.
//
// It goes over the blocks four times: to find them, to touch their fronts, to touch
// the entries that the fronts lead to, and to search. All but the last wait for
// memory at many places at once, where a search waits at one after the other.
func (b *batch) searchCached() {
	for first := 0; first < len(b.probes); {
		i := b.probes[first].block
		end := first + 1
		for end < len(b.probes) && b.probes[end].block == i {
			end++
		}
		g := group{block: i, first: int32(first), end: int32(end)}
		if contents := b.r.cache.lookup(int(i)); contents != nil {
			b.cached = append(b.cached, found{group: g, contents: contents})
		} else {
			b.missing = append(b.missing, g)
		}
		first = end
	}
	for i := range b.cached {
		b.touched += touchFront(b.cached[i].contents)
	}
	for i := range b.cached {
		f := &b.cached[i]
		f.block, _ = parseBlock(f.contents)
		for _, p := range b.probes[f.first:f.end] {
			b.touched += f.block.touchEntry(b.queries[p.query].Hash)
		}
	}
	for i := range b.cached {
		b.search(b.cached[i].group, &b.cached[i].block)
	}
}

// search answers the probes of a group from their block.
func (b *batch) search(g group, block *block) {
	for _, p := range b.probes[g.first:g.end] {
		b.r.search(&b.queries[p.query], int(p.block), block, p.covered)
	}
}

func (b *batch) fail(g group, err error) {
	for _, p := range b.probes[g.first:g.end] {
		b.queries[p.query].fail(err)
	}
}

// planRuns joins missing blocks that lie next to each other.
func (b *batch) planRuns() {
	index := &b.r.index
	for i, g := range b.missing {
		if i > 0 {
			last := &b.runs[len(b.runs)-1]
			gap := index.offsets[g.block] - index.offsets[b.missing[i-1].block+1]
			_, length := index.span(int(b.missing[last.first].block), int(g.block))
			if gap <= joinGap && length <= maxRunBytes {
				last.end++
				continue
			}
		}
		b.runs = append(b.runs, run{first: int32(i), end: int32(i) + 1})
	}
}

// readRuns performs the runs: at the same time, or one after the other while the
// file's reads return at once.
func (b *batch) readRuns() {
	for len(b.runs)-int(b.next.Load()) > 1 {
		if b.r.slow.Load() {
			b.readConcurrently()
			return
		}
		b.takeRun()
	}
	b.takeRun()
}

func (b *batch) readConcurrently() {
	takeAll := func() {
		for b.takeRun() {
		}
	}
	var helpers sync.WaitGroup
	for range min(len(b.runs)-int(b.next.Load()), readDepth) - 1 {
		helpers.Go(takeAll)
	}
	takeAll()
	helpers.Wait()
}

// takeRun performs the next run, if one is left, and notes how long it took.
func (b *batch) takeRun() bool {
	i := int(b.next.Add(1)) - 1
	if i >= len(b.runs) {
		return false
	}
	start := time.Now()
	b.read(b.runs[i])
	if slow := time.Since(start) > slowRead; slow != b.r.slow.Load() {
		b.r.slow.Store(slow)
	}
	return true
}

// read fetches the blocks of a run and answers their queries.
func (b *batch) read(run run) {
	groups := b.missing[run.first:run.end]
	if b.spent(groups) {
		for _, g := range groups {
			b.fail(g, kv.ErrBudgetSpent)
		}
		return
	}
	if len(groups) > 1 && b.readJoined(groups) {
		return
	}
	for _, g := range groups {
		block, err := b.r.fetchBlock(int(g.block))
		b.finish(g, block, err)
	}
}

// spent reports whether no query of the groups may have a value any more.
func (b *batch) spent(groups []group) bool {
	for _, g := range groups {
		for _, p := range b.probes[g.first:g.end] {
			if !b.queries[p.query].Budget.Spent() {
				return false
			}
		}
	}
	return true
}

// readJoined fetches the blocks of several groups by one read. It reports false
// and does nothing if the read fails: the error may be that of a single block.
func (b *batch) readJoined(groups []group) bool {
	index := &b.r.index
	offset, length := index.span(int(groups[0].block), int(groups[len(groups)-1].block))
	buf := runPool.Get().(*[maxRunBytes]byte)
	defer runPool.Put(buf)
	if b.r.readAt(buf[:length], offset) != nil {
		return false
	}
	for _, g := range groups {
		at, n := index.span(int(g.block), int(g.block))
		// A copy: one cached block must not keep the whole run in memory.
		sealed := append([]byte(nil), buf[at-offset:][:n]...)
		block, err := b.r.openBlock(int(g.block), sealed)
		b.finish(g, block, err)
	}
	return true
}

var runPool = sync.Pool{New: func() any { return new([maxRunBytes]byte) }}

// finish answers a group from the block that was read for it.
func (b *batch) finish(g group, block block, err error) {
	if err != nil {
		b.fail(g, err)
		return
	}
	b.r.cache.insert(int(g.block), block.data)
	b.search(g, &block)
}

// release gives the scratch memory back.
func (b *batch) release() {
	b.r, b.queries = nil, nil
	clear(b.cached)
	b.cached = b.cached[:0]
	b.probes, b.missing, b.runs = b.probes[:0], b.missing[:0], b.runs[:0]
	b.next.Store(0)
	batchPool.Put(b)
}
