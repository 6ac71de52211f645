package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/wal"
)

// Call is what one caller waits for: all groups of its writes, one for each
// partition that they touch.
type Call struct {
	left atomic.Int64
	done chan struct{} // one value when the last group is decided
}

// NewCall returns a Call that waits for this many groups.
func NewCall(groups int) *Call {
	c := &Call{done: make(chan struct{}, 1)}
	if bugReplyBlocks {
		c.done = make(chan struct{})
	}
	c.left.Store(int64(groups))
	return c
}

// Done delivers one value once every group is decided.
func (c *Call) Done() <-chan struct{} { return c.done }

// Decided counts one group off.
func (c *Call) Decided() {
	if c.left.Add(-1) == 0 {
		c.done <- struct{}{}
	}
}

// Group is the share of one call that goes to one partition: either independent
// writes, or one atomic batch that lies in this partition alone.
type Group struct {
	call   *Call
	writes []*kv.Write

	batch  *kv.WriteBatch
	origin kv.Origin
	result kv.Write // of the batch: Version and Err

	level kv.Durability // the strongest that any of its writes asked for
	bytes int

	// mu keeps a caller that gives up and the orchestrator apart: whoever holds
	// it may touch the caller's memory, unless abandoned.
	mu        sync.Mutex
	abandoned bool
	decided   bool
	unit      uint32 // of its first write, within the record
}

// NewGroup returns a group of independent writes. Their durability must not be
// kv.DurabilityDefault.
func NewGroup(call *Call, writes []*kv.Write) *Group {
	g := &Group{call: call, writes: writes}
	for _, w := range writes {
		g.level = max(g.level, w.Durability)
		g.bytes += w.Op.Size()
	}
	return g
}

// NewBatchGroup returns a group of one atomic batch, normalized and not empty.
func NewBatchGroup(call *Call, b *kv.WriteBatch, level kv.Durability, origin kv.Origin) *Group {
	return &Group{call: call, batch: b, origin: origin, level: level, bytes: b.Bytes()}
}

// Result returns what became of an atomic batch, once its call is done.
func (g *Group) Result() (kv.SeqNum, error) { return g.result.Version, g.result.Err }

// ops returns the number of operations.
func (g *Group) ops() int {
	if g.batch != nil {
		return g.batch.Len()
	}
	return len(g.writes)
}

// units returns how many sequence numbers the group takes.
func (g *Group) units() uint32 {
	if g.batch != nil {
		return 1
	}
	return uint32(len(g.writes))
}

// encode lays the group out, from unit on. The caller holds g.mu.
func (g *Group) encode(e *kv.RecordEncoder, unit uint32) {
	g.unit = unit
	if g.batch != nil {
		ops := g.batch.Ops()
		for i := range ops {
			e.Op(unit, g.origin, &ops[i])
		}
		return
	}
	for i, w := range g.writes {
		e.Op(unit+uint32(i), w.Origin, &w.Op)
	}
}

// decide gives every write of the group its answer and counts the group off.
// base is the first number of the record; err is nil if the writes happened.
func (g *Group) decide(base kv.SeqNum, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.abandoned || g.decided {
		return
	}
	g.decided = true
	if err != nil {
		base = 0
	}
	switch {
	case g.batch != nil:
		g.result.Err = err
		if err == nil {
			g.result.Version = base + kv.SeqNum(g.unit)
		}
	default:
		for i, w := range g.writes {
			w.Err = err
			if err == nil {
				w.Version = base + kv.SeqNum(g.unit) + kv.SeqNum(i)
			}
		}
	}
	g.call.Decided()
}

// abandon gives the group up: its caller will not look again. The writes that
// are not decided yet get err.
func (g *Group) abandon(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abandoned = true
	if g.decided {
		return
	}
	g.result.Err = err
	for _, w := range g.writes {
		w.Err = err
	}
}

// Submit queues a group. If it returns an error, nothing was queued and every
// write of the group has that error; the group is decided either way, sooner or
// later, through its call.
func (p *Partition) Submit(ctx context.Context, g *Group) {
	if err := p.inbox.Put(ctx, g, g.ops(), g.bytes); err != nil {
		if errors.Is(err, kv.ErrClosed) {
			err = p.closedError()
		}
		g.decide(0, err)
	}
}

// Abandon takes a group back whose caller's context ended with cause. If the
// group is still queued its writes did not happen and get cause; if it is
// already in a record their outcome is unknown: kv.ErrUncertain, which wraps
// cause too. The group's memory is the caller's again.
func (p *Partition) Abandon(g *Group, cause error) {
	if p.inbox.Remove(g) {
		g.abandon(cause)
		return
	}
	g.abandon(fmt.Errorf("%w: %w", kv.ErrUncertain, cause))
}

// Commit is one atomic batch over several partitions: one record, which every
// one of them inserts and none shows before all have.
type Commit struct {
	// Participants hold the record; each calls arrive once, unless the log fails,
	// and settle once.
	participants []*Partition
	left         atomic.Int64
	unsettled    atomic.Int64
	settled      func()
	visible      atomic.Bool // I2: the one store that shows the batch everywhere
	seq          kv.SeqNum   // set before the record is in any inflight list

	done chan struct{} // closed when decided
	once sync.Once
	err  error
}

// CommitAcross appends one record for an atomic batch over several partitions,
// given in ascending order of their ids, and returns a Commit to wait for.
// payload holds one section for each; ownership passes to the partitions. All
// turns are held together while the record is appended, so every partition sees
// such records in the order of the log.
//
// settled is called once: when no partition holds the payload any more, which may
// be long after the caller has given up, or before an error is returned. It must
// not block.
func CommitAcross(participants []*Partition, payload []byte, level kv.Durability, settled func()) (*Commit, error) {
	c := &Commit{participants: participants, settled: settled, done: make(chan struct{})}
	c.left.Store(int64(len(participants)))
	c.unsettled.Store(int64(len(participants)))
	for _, p := range participants {
		p.turn.Lock()
	}
	lead := participants[0]
	var base kv.SeqNum
	var pos wal.Pos
	err := openForCommit(participants)
	if err == nil {
		base, pos, err = lead.log.Append(payload, 1, level, c)
	}
	if err == nil {
		c.seq = base
		for _, p := range participants {
			p.turn.inflight = append(p.turn.inflight, &pending{
				payload: payload, base: base, units: 1, pos: pos, level: level, commit: c,
			})
			p.inflightBytes.Add(int64(len(payload)))
		}
	}
	for _, p := range participants {
		p.turn.Unlock()
	}
	if err != nil {
		settled()
		return nil, err
	}
	lead.log.Flush()
	c.Wake()
	return c, nil
}

// openForCommit reports whether all participants still have an orchestrator. The
// caller holds their turns: an orchestrator ends only when it has found, under its
// turn, that nothing is under way after Close was called.
func openForCommit(participants []*Partition) error {
	for _, p := range participants {
		if p.closing.Load() {
			return p.closedError()
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

// Done is closed when the batch is decided.
func (c *Commit) Done() <-chan struct{} { return c.done }

// Result returns the batch's number, or why it failed, once Done is closed.
func (c *Commit) Result() (kv.SeqNum, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.seq, nil
}

// arrive counts off a participant that has inserted the record. The last one
// makes it visible.
func (c *Commit) arrive() (last bool) {
	if c.left.Add(-1) != 0 {
		return false
	}
	c.visible.Store(true)
	return true
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
