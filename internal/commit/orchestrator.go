package commit

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/stripe"
)

// Orchestrator leads the coordinators of some partitions, its members: the goroutine that
// does what they have to do when no caller does. Its members have one leader at a time, so
// writes to several partitions share the work of one round: a yield, a write of the log, and a
// switch of goroutines.
type Orchestrator struct {
	leaderLock
	events  *event.Listener
	members []*Coordinator
	due     []atomic.Uint64 // a bit for each member that there may be something to do for
	running atomic.Int64    // members that are started and not stopped

	round []*Coordinator // of the leader: the members that it looks at

	helpers atomic.Int32 // callers that look for the leader lock: see help
	left    atomic.Bool  // a leader has left something to do to the helpers

	alone   int      // of the leader: calls, one after the other, that found no company
	company *Company // of all orchestrators of a store
}

// Company knows whether writers of a store are alone, and whether there are readers. The zero value is
// ready.
type Company struct {
	_    [stripe.Bytes]byte // what is beside it is read more often
	met  atomic.Bool
	read atomic.Bool
	skip atomic.Int32 // calls that do not help, because a yield took long
	_    [stripe.Bytes]byte
}

// Meet tells writers that another call is in progress: a write that does not lead, or a read. It is
// cheap if it was called a moment ago.
func (c *Company) Meet() {
	if !c.met.Load() {
		c.met.Store(true)
	}
}

// MeetReader is Meet of a read or a scan.
func (c *Company) MeetReader() {
	c.Meet()
	if !c.read.Load() {
		c.read.Store(true)
	}
}

// readers reports whether MeetReader was called some time ago. It forgets now and then.
func (c *Company) readers() bool {
	return c.read.Load() && (rand.Uint32()%forgetReaders > 0 || c.read.Swap(false))
}

// forgetReaders is how many calls of readers, on average, remember one call of MeetReader. Guessed.
const forgetReaders = 64

const (
	// slowYield is how long a yield takes only if goroutines compute, each for up to 10 ms: a helper gets
	// the processor after them, and a goroutine that is woken before them.
	slowYield = time.Millisecond
	// skipHelps is how many calls then do not help. Guessed.
	skipHelps = 1024
)

// yielded is told how long a yield of a helper took. It reports whether the helper should go on.
func (c *Company) yielded(took time.Duration) bool {
	if took > slowYield {
		c.skip.Store(skipHelps)
		return false
	}
	return true
}

// skips reports whether the next call is one of those that do not help.
func (c *Company) skips() bool { return c.skip.Load() > 0 && c.skip.Add(-1) >= 0 }

// left reports whether Meet was called since the last call of left.
func (c *Company) left() bool { return c.met.Load() && c.met.Swap(false) }

// NewOrchestrator returns an Orchestrator without members: New gives it some.
func NewOrchestrator(events *event.Listener, company *Company) *Orchestrator {
	o := &Orchestrator{events: events, company: company}
	o.init()
	return o
}

// add makes a coordinator a member. Before any member is started.
func (o *Orchestrator) add(c *Coordinator) {
	c.place = len(o.members)
	o.members = append(o.members, c)
	if len(o.due)*64 < len(o.members) {
		o.due = append(o.due, atomic.Uint64{})
	}
}

// start begins to lead a member.
func (o *Orchestrator) start(c *Coordinator) {
	if o.running.Add(1) == 1 {
		go o.orchestrate()
	}
	c.started.Store(true)
	c.Wake()
}

// Wake tells the leader, or else the orchestrator, that there may be something to do for c. It
// never blocks. The log calls it when it has written or synced.
func (c *Coordinator) Wake() {
	c.setDue()
	c.orchestrator.note()
}

// RunReady does what there is to do, unless another goroutine is the leader, which is then
// told. The goroutine that has synced the log calls it if it has no other work, so that
// the orchestrator need not be woken.
func (c *Coordinator) RunReady() {
	c.setDue()
	if o := c.orchestrator; o.lockOrNote() {
		o.finish()
	}
}

// setDue has the leader look at c. The bit is set before the note, and a leader that sees the note
// looks for bits afterwards (R1).
func (c *Coordinator) setDue() { c.orchestrator.due[c.place/64].Or(1 << (c.place % 64)) }

// gather adds the members that are due to the round, each once. The caller is the leader.
func (o *Orchestrator) gather() {
	o.sawAll()
	for i := range o.due {
		if o.due[i].Load() == 0 {
			continue
		}
		for due := o.due[i].Swap(0); due != 0; due &= due - 1 {
			o.join(o.members[64*i+bits.TrailingZeros64(due)])
		}
	}
}

// join adds a member to the round, unless it is in it, has ended or is not started.
func (o *Orchestrator) join(c *Coordinator) {
	if !c.inRound && c.started.Load() && !c.ended {
		c.inRound = true
		o.round = append(o.round, c)
	}
}

// leave ends the round. Members for which there may be more to do are due again, and reported.
func (o *Orchestrator) leave(more func(*Coordinator) bool) (left bool) {
	for i, c := range o.round {
		c.inRound = false
		if more(c) {
			c.setDue()
			left = true
		}
		o.round[i] = nil
	}
	o.round = o.round[:0]
	return left
}

// orchestrate runs until the inboxes of all members are closed and everything taken is decided.
func (o *Orchestrator) orchestrate() {
	linger := time.NewTimer(time.Hour)
	linger.Stop()
	defer linger.Stop()
	defer o.events.Guard()
	lingers := false // writes in some inbox do
	for {
		select {
		case <-o.signal:
		case <-linger.C:
		}
		if !o.lockOrNote() {
			continue // the leader calls pass if it leaves something to do
		}
		for more := true; more; more = !o.unlock() {
			if lingers { // there is one timer for all members
				for _, c := range o.members {
					c.setDue()
				}
			}
			o.alone = 0
			// Callers that are about to queue make the micro-batches larger: one yield took 16
			// partitions with 256 writers from 273 k to 361 k synced puts a second.
			runtime.Gosched()
			again := o.work()
			if lingers = again > 0; lingers {
				linger.Reset(again)
			}
			if o.running.Load() == 0 {
				return // it stays the leader, so that no caller becomes one
			}
		}
	}
}

// work does all work that can be done now. It returns after which time to call it again for
// writes that linger in an inbox; zero: only after a note. The caller is the leader.
func (o *Orchestrator) work() (again time.Duration) {
	for {
		o.gather()
		for _, c := range o.round {
			if wait := c.collect(); wait > 0 && (again == 0 || wait < again) {
				again = wait
			}
		}
		o.flush()
		for _, c := range o.round {
			c.progress = c.applyReady() || c.progress
			c.tree.SealIfDue()
			o.endIfDone(c)
		}
		if !o.leave((*Coordinator).progressed) {
			return again
		}
	}
}

// flush has the log write what members of the round have appended.
func (o *Orchestrator) flush() {
	for _, c := range o.round {
		if c.appended {
			c.log.Flush()
			break
		}
	}
	for _, c := range o.round {
		c.appended = false
	}
}

// endIfDone ends a member that was closed and has decided everything.
func (o *Orchestrator) endIfDone(c *Coordinator) {
	if c.closing.Load() && c.idle() {
		c.ended = true
		o.running.Add(-1)
		close(c.stopped)
	}
}

// progressed reports whether the last look at c had something to do.
func (c *Coordinator) progressed() (more bool) {
	more, c.progress = c.progress, false
	return more
}

// tryLead makes a caller of groups the leader, and reports whether it did: only if no
// other goroutine is. single is the group of a call that has no other one, or nil.
func (o *Orchestrator) tryLead(single *WriteGroup) bool {
	if !o.tryLock() {
		o.company.Meet()
		return false
	}
	o.countCall()
	if single != nil && (single.level >= kv.DurabilitySync || o.mayHaveCompany()) {
		runtime.Gosched() // as in orchestrate
	}
	o.gather()
	if len(o.round) > 0 {
		o.alone = 0
	}
	return true
}

const (
	// aloneCalls is how many calls of callers that lead must have been alone, one after the other,
	// before most of those that follow do not yield. Guessed.
	aloneCalls = 16
	// aloneYields is how many of those calls follow each other before one yields. With 16 nothing
	// was gained.
	aloneYields = 256
)

// countCall counts a call that leads, and looks now and then whether it is alone.
func (o *Orchestrator) countCall() {
	if o.alone++; o.alone%aloneCalls == 0 && o.company.left() {
		o.alone = 0
	}
}

// mayHaveCompany reports whether the caller that leads should yield, unless it waits for a sync: for
// other callers to add their groups, and for readers to get the processor. If there are none, a yield
// makes the runtime wake a thread, and while that looks for work the caller is slower, by a fifth for a
// buffered put: see bench/NOTES.md. Beside a sync that is nothing.
func (o *Orchestrator) mayHaveCompany() bool {
	return o.alone <= aloneCalls || o.alone%aloneYields == 0
}

// takes reports whether a caller that leads may append a group now, which otherwise has to wait.
func (c *Coordinator) takes() bool {
	return c.opts.Writes.Linger == 0 && !c.closing.Load() && len(c.taken) == 0 && c.inflightBytes.Load() < c.opts.InflightBytes
}

// finish does what the log allows now, and ends the leadership.
func (o *Orchestrator) finish() {
	o.gather() // what the log noted about what this goroutine has written among it
	for _, c := range o.round {
		c.appended, c.progress = false, false
		c.applyReady()
		c.tree.SealIfDue()
	}
	o.yield()
}

// yield ends the leadership. What there is left to do is left to the helpers; if there is none, yield
// wakes the orchestrator.
func (o *Orchestrator) yield() {
	if !o.leave((*Coordinator).unfinished) && o.unlock() {
		return
	}
	if o.helpers.Load() == 0 {
		o.pass()
		return
	}
	// In this order: left may become false only when another goroutine can lead.
	o.state.Store(vacant)
	o.left.Store(true)
	if o.helpers.Load() == 0 { // the last one may have looked at left before
		o.wakeIfLeft()
	}
}

// wakeIfLeft wakes the orchestrator if what was left to the helpers may not be done.
func (o *Orchestrator) wakeIfLeft() {
	if o.left.Swap(false) {
		o.wake()
	}
}

const (
	// maxHelpers is how many callers help at a time.
	maxHelpers = 4
	// helpRounds is how often a helper looks before it gives up.
	helpRounds = 128
)

// help is what a caller does before it waits for groups that it has queued: it looks again and again
// whether the call is decided or ctx has ended, and yields the processor. If meanwhile the leader ends, it
// leads for one round. So neither the orchestrator nor the caller need be woken for most writes that find another
// goroutine leading, which take a few microseconds. A goroutine that is woken may wait as long for a
// thread, while its processor idles and its next read does not begin: with readers, that costs a fifth
// of the rate, and makes the slowest of a thousand writes take eight times as long. RocksDB's writers
// look before they wait, too (WriteThread::AwaitState). If all callers write, larger
// micro-batches gain more. See bench/NOTES.md.
func (o *Orchestrator) help(ctx context.Context, call *Call) {
	if !o.company.readers() || o.company.skips() || call.decided() {
		return
	}
	if o.helpers.Add(1) <= maxHelpers {
		before := time.Now()
		for range helpRounds {
			runtime.Gosched()
			now := time.Now()
			if !o.company.yielded(now.Sub(before)) || call.decided() || ctx.Err() != nil {
				break
			}
			before = now
			if o.tryLock() {
				o.leadOnce()
			}
		}
	}
	if o.helpers.Add(-1) == 0 {
		o.wakeIfLeft()
	}
}

// leadOnce does what there is to do, once, and ends the leadership. The caller is the leader.
func (o *Orchestrator) leadOnce() {
	o.left.Store(false) // gather finds all that was left
	o.gather()
	for _, c := range o.round {
		c.collect()
	}
	o.flush()
	o.finish()
}

// unfinished reports whether a caller that has led leaves something to the orchestrator.
func (c *Coordinator) unfinished() bool {
	ops, _ := c.inbox.Len()
	return ops > 0 || len(c.taken) > 0 || c.closing.Load()
}

// idle reports whether nothing is queued and nothing is under way.
func (c *Coordinator) idle() bool {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	ops, _ := c.inbox.Len()
	return ops == 0 && len(c.taken) == 0 && len(c.line.inflight) == 0
}
