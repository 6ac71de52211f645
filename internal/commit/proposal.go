package commit

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/trace"
)

// Share is the part that one partition has in a commit.
type Share struct {
	Coordinator *Coordinator
	Reads       partition.Reads // what must not have changed; nothing, if empty
	Ops         []kv.Op         // what the record has for it; none: it only vouches for Reads
}

// Proposal is a batch, and what it depends on, over one partition or several. A batch of one key
// that depends on no other is better a [WriteGroup].
type Proposal struct {
	Shares     []Share // in ascending order of the partitions' ids; one has Ops
	Durability kv.Durability
	RequestID  kv.RequestID
	Timed      bool // Commit.Trace is wanted

	// Settled is called once: when no partition holds the record any more, which
	// may be long after the caller has given up, or before an error is returned.
	// It must not block.
	Settled func()
}

// Commit is a proposal that was accepted: one record, which every partition that
// has a share of it inserts and none shows before all have.
type Commit struct {
	// Participants hold the record; each calls arrive once, unless the log fails,
	// and settle once.
	participants []*Coordinator
	left         atomic.Int64
	unsettled    atomic.Int64
	settled      func()
	joint        partition.Joint // I2: its Show is the one store that shows the batch everywhere
	read         []*Coordinator  // that have a mark of it
	followed     atomic.Bool     // a record of one of those waits until it is visible
	deduplicated bool
	trace        *trace.Batch // nil unless it is timed

	done chan struct{} // closed when decided
	once sync.Once
	err  error

	// Memory for the record as the first participant holds it, and for the participants.
	firstPart part
	few       [2]*Coordinator
}

// Propose validates a proposal and appends its record, and returns a Commit to
// wait for. The slices of the proposal are not kept.
//
// It holds the appendMu of all partitions concerned while it does, so that they agree on the
// order of such records, and nothing that was read can change before the record
// has its place in the log.
//
// Errors: a *kv.ConflictError if something that was read has changed; partition.ErrStale;
// kv.ErrUncertain for a write that was sent before and is so old that its outcome
// is forgotten; kv.ErrRequestIDReused; else those of Log.Append.
func Propose(p *Proposal) (*Commit, error) {
	c, err := p.append()
	if err != nil || c.deduplicated {
		p.Settled()
	}
	if err != nil {
		return nil, err
	}
	if !c.deduplicated {
		// Proposals that other goroutines are about to append share the write: with 256 callers
		// over the network the log is written once for 22 commits instead of 2.
		runtime.Gosched()
		c.participants[0].log.Flush()
		c.Wake()
	}
	return c, nil
}

func (p *Proposal) append() (*Commit, error) {
	c := &Commit{settled: p.Settled, done: make(chan struct{})}
	if p.Timed {
		c.trace = new(trace.Batch)
		c.trace.Taken.Set(time.Now())
	}
	lay, marks := p.layOut(c), p.readMarks(c)
	for i := range p.Shares {
		p.Shares[i].Coordinator.appendMu.Lock()
	}
	defer func() {
		for i := range p.Shares {
			p.Shares[i].Coordinator.appendMu.Unlock()
		}
	}()
	c.participants = c.few[:0]
	for _, rec := range lay {
		c.participants = append(c.participants, rec.coordinator)
	}
	lead := c.participants[0]
	if err := p.openForCommit(); err != nil {
		return nil, err
	}
	if p.RequestID.Named() {
		// Before the reads are judged: a transaction that was applied conflicts with
		// itself.
		version, known, err := lead.line.ids.recall(p.RequestID)
		if err != nil {
			return nil, err
		}
		if known {
			c.joint.Seq, c.deduplicated = version, true
			lead.stats.duplicates.Add(1)
			close(c.done)
			return c, nil
		}
	}
	for i := range p.Shares {
		s := &p.Shares[i]
		if err := s.Coordinator.changedLocked(&s.Reads); err != nil {
			if !errors.Is(err, partition.ErrStale) {
				s.Coordinator.stats.conflicts.Add(1)
			}
			return nil, err
		}
	}
	if c.trace != nil {
		c.trace.Handed.Set(time.Now())
	}
	base, pos, err := lead.log.Append(lay[0].payload, 1, p.Durability, c, c.trace)
	if err != nil {
		return nil, err
	}
	c.joint.Seq = base // before the record is in any line
	c.left.Store(int64(len(lay)))
	c.unsettled.Store(int64(len(lay)))
	for _, rec := range lay {
		rec.base, rec.pos, rec.commit = base, pos, c
		rec.coordinator.enqueueLocked(&rec.pending)
	}
	for i, m := range marks { // once its own records are in line, which do not wait for it
		if m != nil {
			p.Shares[i].Coordinator.addMarkLocked(m)
		}
	}
	if p.RequestID.Named() {
		id := identifiedUnit{requestIDOf(p.RequestID), p.RequestID.Content, 0}
		lay[0].addNamed(id) // see retractIDs
		lead.line.ids.add(id.id, base, id.content)
	}
	return c, nil
}

// layOut encodes the record and returns what each partition that has a share of
// it will hold. They have the payload in common.
func (p *Proposal) layOut(c *Commit) []*part {
	var encoder record.Encoder
	encoder.Grow(p.size())
	parts := make([]*part, 0, len(p.Shares))
	for i := range p.Shares {
		s := &p.Shares[i]
		if len(s.Ops) == 0 {
			continue
		}
		held := &c.firstPart
		if len(parts) > 0 {
			held = new(part)
		}
		held.coordinator, held.units, held.level, held.together = s.Coordinator, 1, p.Durability, true
		held.hashes = held.few[:0]
		encoder.Section(s.Coordinator.opts.ID, len(s.Ops))
		id := p.RequestID
		for j := range s.Ops {
			encoder.Op(0, id, &s.Ops[j])
			id.Content = 0 // once in a section is enough
			held.note(&s.Ops[j], keyhash.Sum(s.Ops[j].Key))
		}
		parts = append(parts, held)
	}
	for _, held := range parts {
		held.payload = encoder.Bytes()
	}
	return parts
}

// size is at least what the record takes.
func (p *Proposal) size() int {
	const most = 64 // of what is not a key or a value, for each operation or section
	size := 0
	for i := range p.Shares {
		size += most
		for j := range p.Shares[i].Ops {
			op := &p.Shares[i].Ops[j]
			size += most + len(op.Key) + len(op.Value)
		}
	}
	return size
}

// part is a record over several partitions as one of them holds it.
type part struct {
	pending
	coordinator *Coordinator
	few         [2]uint64 // memory for hashes
}

// openForCommit returns an error if one of the partitions concerned is closed. The caller holds the
// appendMu of each: an orchestrator ends only when it has found, under appendMu, that nothing is under
// way after Close was called. A partition that only vouches for reads counts too: once its coordinator
// has ended its tree may be closed, and not tell any more what was written.
func (p *Proposal) openForCommit() error {
	for i := range p.Shares {
		if c := p.Shares[i].Coordinator; c.closing.Load() {
			return c.closedError()
		}
	}
	return nil
}

// Wake tells every participant that the log moved on.
func (c *Commit) Wake() {
	for _, p := range c.participants {
		p.Wake()
	}
}

// RunReady has every participant do what there is to do now.
func (c *Commit) RunReady() {
	for _, p := range c.participants {
		p.RunReady()
	}
}

// Done is closed when the batch is decided.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Trace returns the times of the batch, nil unless it is timed. It may
// be asked at any time.
func (c *Commit) Trace() *trace.Batch { return c.trace }

// Result returns the batch's number, or why it failed, once Done is closed.
func (c *Commit) Result() (kv.SeqNum, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.joint.Seq, nil
}

// Deduplicated reports whether the batch had been applied before and was not
// again. Its version is then known at once, but may not be visible yet.
func (c *Commit) Deduplicated() bool { return c.deduplicated }

// arrive counts off a participant that has inserted the record. The last one
// makes it visible.
func (c *Commit) arrive() (last bool) {
	if c.left.Add(-1) != 0 {
		return false
	}
	c.show()
	return true
}

// show makes the record visible, and wakes the partitions in which another waits for it.
// The order of store and load matters: precedingLocked stores followed before the other
// record looks whether this one is visible.
func (c *Commit) show() {
	c.joint.Show()
	if c.followed.Load() {
		for _, p := range c.read {
			p.Wake()
		}
	}
}

// settle counts off a participant that has let go of the record, and tells the
// caller how it ended, if that is not known yet.
func (c *Commit) settle(err error) {
	if c.unsettled.Add(-1) == 0 {
		c.settled()
	}
	c.once.Do(func() {
		c.err = err
		close(c.done)
	})
}
