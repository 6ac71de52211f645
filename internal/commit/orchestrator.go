package commit

import (
	"runtime"
	"time"
)

// Wake tells the leader, or else the orchestrator, that there may be something to do. It
// never blocks. The log calls it when it has written or synced.
func (c *Coordinator) Wake() { c.leader.note() }

// RunReady does what there is to do, unless another goroutine is the leader, which is then
// told. The goroutine that has synced the log calls it if it has no other work, so that
// the orchestrator need not be woken.
func (c *Coordinator) RunReady() {
	if c.leader.lockOrNote() {
		c.finish()
	}
}

// orchestrate is the orchestrator: the leader when no caller is. It runs until the inbox is
// closed and everything taken is decided.
func (c *Coordinator) orchestrate() {
	defer close(c.stopped)
	linger := time.NewTimer(time.Hour)
	linger.Stop()
	defer linger.Stop()
	defer c.opts.Events.Guard()
	for {
		select {
		case <-c.leader.signal:
		case <-linger.C:
		}
		if !c.leader.lockOrNote() {
			continue // the leader calls pass if it leaves something to do
		}
		for more := true; more; more = !c.leader.unlock() {
			// Callers that are about to queue make the micro-batch larger: one yield took 16
			// partitions with 256 writers from 273 k to 361 k synced puts a second.
			runtime.Gosched()
			if again := c.work(); again > 0 {
				linger.Reset(again)
			}
			if c.closing.Load() && c.idle() {
				return // it stays the leader, so that no caller becomes one
			}
		}
	}
}

// work does all work that can be done now. It returns after which time to call it again for
// writes that linger in the inbox; zero: only after a note. The caller is the leader.
func (c *Coordinator) work() (again time.Duration) {
	for {
		c.leader.sawAll()
		took, wait := c.collect()
		applied := c.applyReady()
		c.tree.SealIfDue()
		again = max(again, wait)
		if !took && !applied {
			return again
		}
	}
}

// tryLead makes the caller of a group the leader, and reports whether it did: only if no
// other goroutine is, and the group need not wait.
func (c *Coordinator) tryLead() bool {
	if c.opts.Writes.Linger > 0 || !c.leader.tryLock() {
		return false
	}
	if c.closing.Load() || c.inflightBytes.Load() >= c.opts.InflightBytes || len(c.taken) > 0 {
		c.yield()
		return false
	}
	return true
}

// finish does what the log allows now, and ends the leadership.
func (c *Coordinator) finish() {
	c.leader.sawAll() // the log's note of what this goroutine has written among them
	c.applyReady()
	c.tree.SealIfDue()
	c.yield()
}

// yield ends the leadership, and wakes the orchestrator if there is something to do for
// it.
func (c *Coordinator) yield() {
	if ops, _ := c.inbox.Len(); ops > 0 || len(c.taken) > 0 || c.closing.Load() || !c.leader.unlock() {
		c.leader.pass()
	}
}

// idle reports whether nothing is queued and nothing is under way.
func (c *Coordinator) idle() bool {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	ops, _ := c.inbox.Len()
	return ops == 0 && len(c.taken) == 0 && len(c.line.inflight) == 0
}
