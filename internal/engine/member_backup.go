package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// tailSegmentBytes is the length of a segment of the log of a checkpoint that a member makes.
// It is written about every tailFlushBytes.
const (
	tailSegmentBytes = 4 << 20
	tailFlushBytes   = 256 << 10
)

// checkpointAlone is Engine.Checkpoint of a member: the store of a single node. Its tables are
// flushed first. What was committed meanwhile is in its log, which is made for it in memory:
// the records of the cluster are those of a single node. It is no more than what fits into
// memtables.
func (m *member) checkpointAlone(ctx context.Context, rate int64) (*Checkpoint, error) {
	if err := m.round(ctx, kv.Freshness{}); err != nil { // K1
		return nil, err
	}
	c, err := m.e.newCheckpoint(rate)
	if err != nil {
		return nil, err
	}
	return c.made(m.collectAlone(ctx, c))
}

// collectAlone adds the files of the store of a single node.
func (m *member) collectAlone(ctx context.Context, c *Checkpoint) error {
	e := m.e
	flushed, err := m.flushVisible(ctx)
	if err != nil {
		return err
	}
	at, err := m.hold(c, flushed, time.Now()) // the newest place: the log is short
	if err != nil {
		return err
	}
	// As in Checkpoint: the tables hold nothing above a visible number that is read later.
	versions, err := c.keep(nil)
	if err != nil {
		return err
	}
	if c.version, err = c.chooseVersion(ctx); err != nil {
		return err
	}
	log, err := m.tail(ctx, at, c.version)
	if err != nil {
		return fmt.Errorf("log of a checkpoint: %w", err)
	}
	for i := range log {
		c.pace.Owe(log[i].Size)
	}
	m.unhold(c)
	// Read after the version: no expiry up to there was decided at a later time.
	if bound := e.now(); bound > 0 {
		clock := descriptor.Clock{StoreID: e.descriptor.StoreID, Bound: bound}
		c.addData(descriptor.ClockName, clock.Encode())
	}
	c.addData(descriptor.Name, e.descriptor.Encode())
	for _, version := range versions {
		v := *version
		v.Position = nil // the log is the store's own
		c.addPartition(&v)
	}
	c.addLog(log)
	return nil
}

// tail returns the records after a place, up to a version, as the log of a single node.
func (m *member) tail(ctx context.Context, at Position, version kv.SeqNum) (_ []wal.SnapshotFile, err error) {
	o := wal.Options{
		FS: vfs.NewMem(), Dir: descriptor.LogName, StoreID: m.e.descriptor.StoreID, SegmentBytes: tailSegmentBytes, MinSeq: at.Seq, Fresh: true,
	}
	log, _, err := wal.Open(o, func(wal.Record) error { return nil })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	bytes, last := int64(0), at.Seq
	err = m.log.Records(ctx, at.Index, func(b []byte) (bool, error) {
		r, err := decodeEntry(b)
		switch {
		case err != nil || r.last() <= at.Seq:
			return true, err
		case r.base > version:
			return false, nil
		}
		if bytes += int64(len(b)); bytes > m.e.opts.MemtableBytes {
			return false, &kv.OverloadError{Reason: "checkpoint_log", RetryAfter: time.Second}
		}
		base, err := appendWhenRoom(ctx, log, r.payload, r.units)
		if last = r.last(); err == nil && base != r.base {
			err = fmt.Errorf("%w: record %d of the cluster follows %d", kv.ErrCorrupt, r.base, base-1)
		}
		return true, err
	})
	if err == nil && last != version {
		err = fmt.Errorf("%w: the records of the cluster end at %d, want %d", kv.ErrCorrupt, last, version)
	}
	if err == nil {
		log.Flush()
		err = log.WaitSynced(ctx, log.End())
	}
	if err != nil {
		return nil, err
	}
	hold := log.Hold()
	defer hold.Release()
	return hold.Snapshot(ctx, version)
}

// appendWhenRoom appends a record to a log that no other goroutine uses.
func appendWhenRoom(ctx context.Context, log *wal.Log, payload []byte, units uint32) (kv.SeqNum, error) {
	for {
		base, end, err := log.Append(payload, units, kv.DurabilityMemory, channelWaker(make(chan struct{}, 1)), nil)
		switch {
		case err == nil && end%tailFlushBytes < wal.Pos(len(payload)):
			log.Flush()
			return base, nil
		case errors.Is(err, wal.ErrNoRoomYet):
			log.Flush()
			err = log.AwaitRoom(ctx)
		case errors.Is(err, kv.ErrOverloaded): // too many numbers are not synced
			log.Flush()
			err = log.WaitSynced(ctx, log.End())
		default:
			return base, err
		}
		if err != nil {
			return 0, err
		}
	}
}
