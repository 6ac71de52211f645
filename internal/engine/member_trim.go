package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// maintainMember is the maintenance loop of a member of a cluster: as maintain, but that the
// log is not the node's own.
func (e *Engine) maintainMember() {
	defer e.events.Guard()
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	full := e.diskFull()
	for {
		select {
		case <-e.maintenance.stop:
			return
		case <-e.member.log.Done():
			e.fail(e.member.log.Err())
			return
		case <-e.disk.wake:
			e.watchDisk(false)
		case <-tick.C:
			if e.checkPlaces(); e.misplaced.Load() {
				return
			}
			e.watchDisk(true)
			e.endLeases(time.Now())
			full = e.endCheckpoints(full)
			if !e.disk.unwritable.Load() {
				e.keepSpace(time.Now())
			}
			e.member.trimRequestIDs()
			e.member.stamp()
			e.member.askToCompare(time.Now())
			e.member.tellSpace()
		case <-e.maintenance.wake:
		}
		if !e.disk.unwritable.Load() {
			if err := e.member.trim(); err != nil {
				e.trimFailed(err)
			}
		}
	}
}

// trimFailed reports an error of trim; one of a manifest is final.
func (e *Engine) trimFailed(err error) {
	if errors.Is(err, kv.ErrFailed) {
		e.fail(err)
	} else {
		e.upkeepFailed(err)
	}
}

// stamp sets the store's clock, if this node leads and keys may expire. Without room, the next
// call does.
func (m *member) stamp() {
	if w := m.leading.Load(); w != nil && m.expires.Load() {
		_ = w.tenure.stamp(m.e.Now())
	}
}

// trimRequestIDs forgets the request ids that have left the window.
func (m *member) trimRequestIDs() {
	m.mu.Lock() // not for long: what has left within a second
	defer m.mu.Unlock()
	coordinators := m.next
	if m.tenure != nil {
		coordinators = m.tenure.coordinators
	}
	trimRequestIDs(coordinators)
}

// tellSpace tells the log whether this node lacks space: then another one should lead, before this
// one has none left for the log.
func (m *member) tellSpace() {
	why := ""
	if err := m.e.ReadOnly(); err != nil {
		why = err.Error()
	}
	m.log.Full(why)
}

// trim gives up the log that all partitions have flushed, except for about a segment: nodes
// that were away for a short time get that. For a node that was away for longer the leader keeps
// up to logBytes, and sends a checkpoint after that. A partition to which no writes go saves
// its position, and one whose oldest unflushed write holds too much log is flushed.
func (m *member) trim() error {
	// Before a partition is seen to have nothing unflushed. After a restart what is in tables
	// counts as visible, although not all partitions have it yet.
	visible := min(m.e.sequencer.Visible(), kv.SeqNum(m.applied.Load()))
	var lowest *Position
	for _, p := range m.e.partitions {
		at, err := savedPosition(p)
		if err != nil {
			return err
		}
		if at == nil {
			at = &Position{} // the beginning
		}
		if lowest == nil || at.Index < lowest.Index {
			lowest = at
		}
		if err := m.advance(p, m.places.since(at.Index), visible); err != nil {
			return err
		}
	}
	keep, ok := m.places.before(m.e.opts.SegmentBytes)
	if !ok {
		return nil
	}
	lagged, _ := m.places.before(m.e.opts.logBytes)
	m.holding.Lock()
	defer m.holding.Unlock()
	upTo := min(lowest.Index, keep.Index)
	for _, index := range m.holds {
		upTo = min(upTo, index)
	}
	if most := min(upTo, lagged.Index); upTo > m.compacted || most > m.mostCompacted {
		m.compacted, m.mostCompacted = max(m.compacted, upTo), most
		m.places.forget(upTo, most)
		m.log.Compact(upTo, most)
	}
	return nil
}

// advance moves the position of a partition if it holds too much of the log: so many bytes.
func (m *member) advance(p *partition.Partition, held int64, visible kv.SeqNum) error {
	switch _, unflushed := p.UnflushedFrom(); {
	case unflushed && held > m.e.opts.logBytes:
		p.Seal()
	case !unflushed && held >= m.e.opts.SegmentBytes:
		return p.SavePosition(m.life, visible)
	}
	return nil
}

// savedPosition returns the position that a partition has saved with its tables, nil if none.
func savedPosition(p *partition.Partition) (*Position, error) {
	b := p.SavedPosition()
	if b == nil {
		return nil, nil
	}
	at, err := DecodePosition(b)
	if err != nil {
		return nil, fmt.Errorf("manifest of partition %d: %w", p.ID(), err)
	}
	return &at, nil
}

// positionAt returns what a partition saves as its position with a flush up to a number; nil: the
// one that it has saved before stays. It is older than nameSpan, unless that is too much of the
// log, so that a restart learns the request ids of recent writes.
func (m *member) positionAt(id int, flushed kv.SeqNum) []byte {
	at, ok := m.places.at(flushed, time.Now().Add(-nameSpan), nameSpanSegments*m.e.opts.SegmentBytes)
	if !ok {
		return nil
	}
	if saved, err := savedPosition(m.e.partitions[id]); err != nil || saved != nil && saved.Index >= at.Index {
		return nil
	}
	return at.Encode()
}
