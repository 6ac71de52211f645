package sstable

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/event"
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

// batch is the scratch memory of what one GetBatch reads from files.
type batch struct {
	missing []*Ask  // by file and block
	groups  []group // of the same
	runs    []run
	next    atomic.Int32 // run to take
}

// group is the asks that miss one block: missing[first:end].
type group struct {
	r          *Reader
	block      int
	first, end int
}

// run is the groups of one file that one read fetches: groups[first:end].
type run struct {
	first, end int
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// GetBatch does for every ask what Get does for one, in one walk over all files that
// are asked: what is cached is answered as by GetCached; each block that is not is
// looked for once; those are read in the order of their files, neighbours by one read,
// and distant ones at the same time if the disk is what they wait for. A damaged block
// fails the queries that need it and no others.
//
// Cost: at most one read per distinct block; up to seven goroutines besides the
// caller's, none unless two or more reads are needed and reads of a file that is asked
// were slow of late.
func GetBatch(asks []Ask) {
	getCached(asks, true)
	if !slices.ContainsFunc(asks, func(a Ask) bool { return a.Missing }) {
		return
	}
	b := batchPool.Get().(*batch)
	for i := range asks {
		if a := &asks[i]; a.Missing {
			a.Missing = false
			b.missing = append(b.missing, a)
		}
	}
	slices.SortFunc(b.missing, func(x, y *Ask) int {
		return cmp.Or(x.Reader.compare(y.Reader), cmp.Compare(x.at, y.at))
	})
	b.group()
	b.planRuns()
	b.readRuns()
	b.release()
}

// compare orders readers of different files, in any order.
func (r *Reader) compare(s *Reader) int {
	if r == s {
		return 0
	}
	x, y := &r.footer.id, &s.footer.id
	return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Num, y.Num))
}

// group gathers the asks of each block.
func (b *batch) group() {
	for i, a := range b.missing {
		if n := len(b.groups) - 1; n >= 0 && b.groups[n].r == a.Reader && b.groups[n].block == a.at {
			b.groups[n].end++
			continue
		}
		b.groups = append(b.groups, group{r: a.Reader, block: a.at, first: i, end: i + 1})
		a.Reader.cache.missed()
	}
}

// fail fails the queries of a group.
func (b *batch) fail(g *group, err error) {
	for _, a := range b.missing[g.first:g.end] {
		a.Query.fail(err)
	}
}

// planRuns joins missing blocks that lie next to each other.
func (b *batch) planRuns() {
	for i := range b.groups {
		g := &b.groups[i]
		if n := len(b.runs) - 1; n >= 0 && b.groups[i-1].r == g.r {
			index := &g.r.index
			gap := index.offsets[g.block] - index.offsets[b.groups[i-1].block+1]
			_, length := index.span(b.groups[b.runs[n].first].block, g.block)
			if gap <= joinGap && length <= maxRunBytes {
				b.runs[n].end++
				continue
			}
		}
		b.runs = append(b.runs, run{first: i, end: i + 1})
	}
}

// readRuns performs the runs: at the same time, or one after the other while the
// reads of their files return at once.
func (b *batch) readRuns() {
	for len(b.runs)-int(b.next.Load()) > 1 {
		if b.reader(int(b.next.Load())).slow.Load() {
			b.readConcurrently()
			return
		}
		b.takeRun()
	}
	b.takeRun()
}

// reader returns the reader of a run.
func (b *batch) reader(run int) *Reader { return b.groups[b.runs[run].first].r }

func (b *batch) readConcurrently() {
	takeAll := func() {
		for b.takeRun() {
		}
	}
	var helpers event.Helpers
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
	r := b.reader(i)
	if slow := time.Since(start) > slowRead; slow != r.slow.Load() {
		r.slow.Store(slow)
	}
	return true
}

// read fetches the blocks of a run and answers their queries.
func (b *batch) read(run run) {
	groups := b.groups[run.first:run.end]
	if b.spent(groups) {
		for i := range groups {
			b.fail(&groups[i], kv.ErrBudgetSpent)
		}
		return
	}
	if len(groups) > 1 && b.readJoined(groups) {
		return
	}
	for i := range groups {
		g := &groups[i]
		block, err := g.r.fetchBlock(g.block)
		b.finish(g, block, err)
	}
}

// spent reports whether no query of the groups may have a value any more.
func (b *batch) spent(groups []group) bool {
	for _, a := range b.missing[groups[0].first:groups[len(groups)-1].end] {
		if !a.Query.Budget.Spent() {
			return false
		}
	}
	return true
}

// readJoined fetches the blocks of several groups of a file by one read. It reports
// false and does nothing if the read fails: the error may be that of a single block.
func (b *batch) readJoined(groups []group) bool {
	r := groups[0].r
	offset, length := r.index.span(groups[0].block, groups[len(groups)-1].block)
	buf := runPool.Get().(*[maxRunBytes]byte)
	defer runPool.Put(buf)
	if r.readAt(buf[:length], offset) != nil {
		return false
	}
	for i := range groups {
		g := &groups[i]
		at, n := r.index.span(g.block, g.block)
		// A copy: one cached block must not keep the whole run in memory.
		sealed := append([]byte(nil), buf[at-offset:][:n]...)
		block, err := r.openBlock(g.block, sealed)
		b.finish(g, block, err)
	}
	return true
}

var runPool = sync.Pool{New: func() any { return new([maxRunBytes]byte) }}

// finish answers a group from the block that was read for it.
func (b *batch) finish(g *group, block block, err error) {
	if err != nil {
		b.fail(g, err)
		return
	}
	g.r.cache.insert(g.block, block.data)
	for _, a := range b.missing[g.first:g.end] {
		g.r.search(a.Query, a.at, &block, a.covered)
	}
}

// release gives the scratch memory back.
func (b *batch) release() {
	clear(b.missing)
	clear(b.groups)
	b.missing, b.groups, b.runs = b.missing[:0], b.groups[:0], b.runs[:0]
	b.next.Store(0)
	batchPool.Put(b)
}
