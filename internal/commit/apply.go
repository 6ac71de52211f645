package commit

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// applyReady inserts, publishes and answers every record at the head of the line
// that is durable enough, and those beyond it that are: see applyEarly. It reports
// whether there was one.
func (c *Coordinator) applyReady() (progress bool) {
	for {
		rec := c.head()
		if rec == nil {
			return progress
		}
		if err := c.log.Err(); err != nil && !rec.shown() {
			c.failInflight(err)
			return true
		}
		if rec.units > 0 && !rec.arrived {
			if !c.durable(rec) || rec.waits() {
				return c.applyEarly() || progress
			}
			c.arrive(rec)
		}
		if rec.commit != nil && !rec.commit.joint.Visible() {
			return c.applyEarly() || progress // the last participant to insert wakes the others
		}
		if rec.units > 0 {
			c.publish(rec)
		}
		c.pop()
		c.publishEarly()
		c.decide(rec, nil)
		progress = true
	}
}

// durable reports whether the log holds the record as safely as was asked.
func (c *Coordinator) durable(rec *pending) bool {
	return c.log.Reached(rec.level) >= rec.pos
}

// insert puts the record's operations into the tree, where no reader sees them before
// publish.
func (c *Coordinator) insert(rec *pending) {
	c.tree.Insert(partition.Record{Base: rec.base, Payload: rec.payload, Hashes: rec.hashes, Pos: rec.pos})
	rec.inserted = true
}

// arrive inserts the record at the head of the line, which is durable. The last of
// several partitions to do so makes the record visible in all of them.
func (c *Coordinator) arrive(rec *pending) {
	if !rec.inserted {
		c.insert(rec)
	}
	rec.arrived = true
	if rec.commit == nil {
		return
	}
	c.tree.Expect(&rec.commit.joint) // before arrive: readers must find it in every tree
	if rec.commit.arrive() {
		c.opts.Applied.Applied(rec.base, rec.units)
		rec.commit.Wake()
	}
}

// publish makes an inserted record visible to readers of this partition.
func (c *Coordinator) publish(rec *pending) {
	c.published = rec.last()
	c.tree.Publish(c.published)
	if rec.commit != nil {
		return
	}
	c.opts.Applied.Applied(rec.base, rec.units)
}

func (c *Coordinator) head() *pending {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	if len(c.line.inflight) == 0 {
		return nil
	}
	return c.line.inflight[0]
}

func (c *Coordinator) pop() {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	rec := c.line.inflight[0]
	c.line.levels.add(rec, -1)
	c.inflightBytes.Add(-int64(len(rec.payload)))
	c.line.inflight[0] = nil
	c.line.inflight = c.line.inflight[1:]
	if len(c.line.inflight) == 0 {
		c.line.inflight = nil
	}
}

// decide answers every caller that waits for the record, and recycles it.
func (c *Coordinator) decide(rec *pending, err error) {
	for _, g := range rec.groups {
		g.decide(rec.base, err)
	}
	if rec.commit != nil {
		rec.commit.settle(err)
		return
	}
	c.recycle(rec)
}

// failInflight answers all that is under way with the error that stopped the
// log. A record may have reached the disk: its outcome is unknown. Its request ids are
// retracted, so that the next coordinator of the tree inherits those of applied writes alone. The
// caller has applied what is shown.
func (c *Coordinator) failInflight(cause error) {
	err := fmt.Errorf("%w: %w", kv.ErrUncertain, cause)
	for rec := c.head(); rec != nil; rec = c.head() {
		c.pop()
		c.retractIDs(rec)
		c.decide(rec, err)
	}
}

// retractIDs forgets the request ids of a record that this coordinator will not apply.
func (c *Coordinator) retractIDs(rec *pending) {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	for _, u := range rec.named {
		c.line.ids.retract(u.id)
	}
}
