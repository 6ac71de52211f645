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
	// joinGap is the largest gap of unneeded bytes between two blocks that one read
	// fetches: about a block, which costs less than another read.
	joinGap = 4 << 10
	// maxRunBytes bounds one joined read, and so its buffer.
	maxRunBytes = 256 << 10
	// readDepth is how many reads of one batch run at once. Guessed: it balances what
	// one disk queue takes against what a batch may cost in goroutines.
	readDepth = 8
	// slowRead distinguishes a read that waited for a disk from one that the page cache
	// served: the latter take 2 to 10 us, a flash disk 60 us or more. Reads that do not
	// wait are faster one after the other than on several goroutines.
	slowRead = 40 * time.Microsecond
)

// batch is the scratch memory for the file reads of one GetBatch.
type batch struct {
	missing []*Ask  // sorted by file and block
	groups  []group // in the order of missing
	runs    []run
	next    atomic.Int32 // index of the next run to execute
	waited  atomic.Bool  // a run was slow
}

// group is the asks that need one uncached block: missing[first:end].
type group struct {
	r          *Reader
	block      int
	first, end int
}

// run is the groups that one read of a file fetches: groups[first:end].
type run struct {
	first, end int
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

// GetBatch does for every ask what Get does for one, in one pass over all files. Asks
// whose block is cached are answered as by GetCached. A query whose value is apart and not
// in the ask's Values is answered with the pointer. Each other block is read once:
// blocks are read in the order of their files, adjacent blocks by one read, and
// separate reads run concurrently if the disk is slow. A damaged block fails only the
// queries that need it. It reports whether a read waited for the disk.
//
// Cost: at most one read per distinct block; up to seven goroutines besides the
// caller's, none unless two or more reads are needed and recent reads of one of the
// files were slow.
func GetBatch(asks []Ask) (waited bool) {
	getCached(asks, true)
	if !slices.ContainsFunc(asks, func(a Ask) bool { return a.Missing }) {
		return false
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
	waited = b.waited.Load()
	b.release()
	return waited
}

// compare orders the readers of different files; which order does not matter.
func (r *Reader) compare(s *Reader) int {
	if r == s {
		return 0
	}
	x, y := &r.footer.id, &s.footer.id
	return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Num, y.Num))
}

// group collects the asks of each block.
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

// planRuns joins missing blocks that are close to each other.
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

// readRuns executes the runs: concurrently, or one after the other while the reads of
// their files are fast.
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

// takeRun executes the next run, if one is left, and records whether it was slow.
func (b *batch) takeRun() bool {
	i := int(b.next.Add(1)) - 1
	if i >= len(b.runs) {
		return false
	}
	start := time.Now()
	b.read(b.runs[i])
	r := b.reader(i)
	slow := time.Since(start) > slowRead
	if slow != r.slow.Load() {
		r.slow.Store(slow)
	}
	if slow {
		b.waited.Store(true)
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

// spent reports whether the budgets of all queries of the groups are exhausted.
func (b *batch) spent(groups []group) bool {
	for _, a := range b.missing[groups[0].first:groups[len(groups)-1].end] {
		if !a.Query.Budget.Spent() {
			return false
		}
	}
	return true
}

// readJoined fetches the blocks of several groups of a file by one read. If the read
// fails it reports false and does nothing: the error may concern a single block.
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
		if a.Query.Apart {
			a.Values.answer(a.Query)
		}
	}
}

// release returns the scratch memory to the pool.
func (b *batch) release() {
	clear(b.missing)
	clear(b.groups)
	b.missing, b.groups, b.runs = b.missing[:0], b.groups[:0], b.runs[:0]
	b.next.Store(0)
	b.waited.Store(false)
	batchPool.Put(b)
}
