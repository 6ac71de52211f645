package partition

import "github.com/kvd-db/kvd/internal/kv"

// AskSeal has the active memtable sealed soon, and closes done when it is.
func (p *Partition) AskSeal(done chan struct{}) { p.askSeal(done) }

// NewestVisible returns the newest number that may be read, and the newest that the state
// has which it may be read from.
func (p *Partition) NewestVisible() (at, newest kv.SeqNum) {
	state, at, _ := p.acquireVisible()
	defer state.release()
	newest = state.levels.version.FlushedSeq
	for table := range state.memtables() {
		newest = max(newest, table.MaxSeq())
	}
	return at, newest
}

// RestTogether is Rest of the first share of several lookups, which one micro-batch serves.
func (p *Partition) RestTogether(lookups []TwoPhaseLookup) {
	var batch []readGroup
	for _, t := range lookups {
		batch = append(batch, readGroup{section: &t.l.sections[0]})
	}
	p.serveReads(batch)
}
