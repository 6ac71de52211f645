package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/wal"
)

// FirstLog is the log of a cluster whose first member has data already, as ConvertToMember needs
// it.
type FirstLog interface {
	// Begin returns the position at which the log begins: after everything up to a number, and at
	// a time of the store's clock; 0: the store never had a key with an expiry.
	Begin(seq kv.SeqNum, time uint64) (Position, error)
	// Create makes the log of this node, durably. It begins at the position that Begin has
	// returned, and goes on with the records that fill passes to add, which copies them. They
	// count as committed.
	Create(f LogFiles, fill func(add func(record []byte) error) error) error
}

// conversion is what makes the store of a single node a member of a cluster: see
// ConvertToMember.
type conversion struct {
	log      FirstLog
	position []byte    // of all partitions; nil until everything is in tables
	from     kv.SeqNum // of the first record that the new log takes over
	last     kv.SeqNum // the newest number
}

// ConvertToMember makes the store of a single node in dir, which no process has open, a member of
// a new cluster, in place: Open with Options.Replicated then continues from its data. The id of the
// store stays. In this order, each step durable before the next:
//
//  1. The log is recovered, and what only it holds is written to tables.
//  2. Every partition saves the position at which the log of the cluster begins.
//  3. log.Create makes that log, beside the old one. It takes over the newest records, which are
//     in tables, because of their request ids: see nameSpanSegments.
//  4. NODE is written: the decision.
//  5. The next Open, as a member, deletes the old log before anything else.
//
// Until NODE is there, the store is that of a single node. Open as that, or the next call, deletes
// the new log; the saved positions mean nothing. A member takes part in the cluster only after step
// 5, so a store that has its old log has given no vote.
//
// Errors: kv.ErrInvalidArgument if there is no store, or it is a member already, or has an archive;
// those of Open, and of the file system.
func ConvertToMember(dir string, o Options, node descriptor.Node, log FirstLog) (err error) {
	defer o.Events.Guard()
	defer func() {
		if err != nil {
			err = fmt.Errorf("make store %s a member of a cluster: %w", dir, err)
		}
	}()
	asked := o
	if o, err = o.withDefaults(); err != nil {
		return err
	}
	if o.ReadOnly || o.Archive.Dir != "" || o.Replicated != nil {
		return fmt.Errorf("%w: a member of a cluster can neither be opened read-only nor archive its log yet", kv.ErrInvalidArgument)
	}
	if err := formats.Check(o.FS, dir); err != nil {
		return err
	}
	if cause := ReadOnlyCause(o.FS, dir); cause != nil {
		return fmt.Errorf("the file system is read-only: mount it writable and repeat: %w", cause)
	}
	if _, err := descriptor.Read(o.FS, dir); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: no store is there", kv.ErrInvalidArgument)
	} else if err != nil {
		return err
	}
	e, err := newLocked(dir, o, nil)
	if err != nil {
		return err
	}
	e.converts = &conversion{log: log}
	if err = e.openDisk(&asked); err == nil {
		err = e.convert(node)
	}
	return errors.Join(err, e.tearDown())
}

// convert makes the store, of which nothing is open, that of a node.
func (e *Engine) convert(node descriptor.Node) error {
	if err := e.checkSpaceToConvert(); err != nil {
		return err
	}
	if err := e.open(); err != nil {
		return err
	}
	if err := e.checkSpaceToConvert(); err != nil {
		return err
	}
	c := e.converts
	c.last = e.recovery.NextSeq - 1
	e.sequencer.start(c.last) // a flush waits until what it writes is visible
	if err := c.chooseTail(e); err != nil {
		return err
	}
	err := together(e.events, len(e.partitions), func(i int) error {
		return e.partitions[i].FlushReplayed(context.Background(), e.log)
	})
	if err != nil {
		return err
	}
	if err := c.savePositions(e); err != nil {
		return err
	}
	files := LogFiles{
		FS: e.opts.FS, Dir: descriptor.LogDir(e.dir), Data: e.dir, SegmentBytes: e.opts.SegmentBytes, Created: true, Boot: e.epoch,
	}
	if err := c.log.Create(files, func(add func([]byte) error) error { return c.fill(e.log, add) }); err != nil {
		return err
	}
	node.StoreID = e.descriptor.StoreID
	return descriptor.WriteNode(e.opts.FS, e.dir, &node)
}

// checkSpaceToConvert returns an error if the disk is nearly full: recovery may then have given
// back a part of the log, and there may be no space for tables.
func (e *Engine) checkSpaceToConvert() error {
	if !e.readOnly.Load() && (e.log == nil || e.log.Suspended() == nil) {
		return nil
	}
	return fmt.Errorf("%w: %s are free, want at least %s: free space and repeat", syscall.ENOSPC,
		bytesize.Format(int64(e.disk.free.Load())), bytesize.Format(int64(e.opts.LowDiskBytes)))
}

// chooseTail chooses the records that the new log takes over: as far back as request ids are
// promised after a restart, and at most what the old log has.
func (c *conversion) chooseTail(e *Engine) error {
	size := func(r *wal.Record) int64 { return int64(len(r.Payload) + entryHeaderBytes) }
	left := int64(0)
	err := e.log.Replay(0, func(r wal.Record) error {
		left += size(&r)
		return nil
	})
	if err != nil {
		return err
	}
	c.from = c.last + 1
	return e.log.Replay(0, func(r wal.Record) error {
		switch {
		case left > nameSpanSegments*e.opts.SegmentBytes:
			left -= size(&r)
		case r.Base < c.from:
			c.from = r.Base
		}
		return nil
	})
}

// savePositions saves the position before the records that the new log takes over, which tables
// have, with the newest time that a reader may have seen.
func (c *conversion) savePositions(e *Engine) error {
	time := uint64(0)
	if e.clock.bound.Load() != nil { // there is a CLOCK
		time = e.clock.Now()
	}
	at, err := c.log.Begin(c.from-1, time)
	if err != nil {
		return err
	}
	c.position = at.Encode()
	return together(e.events, len(e.partitions), func(i int) error {
		p := e.partitions[i]
		err := p.SavePosition(context.Background(), c.last)
		if err == nil && !bytes.Equal(p.SavedPosition(), c.position) {
			err = fmt.Errorf("partition %d has records that are in no table", i)
		}
		return err
	})
}

// fill passes the newest records to add. The log of a cluster has no gaps in its numbers, as that of a
// single node has after a crash: they are filled with records that have no keys.
func (c *conversion) fill(log *wal.Log, add func([]byte) error) error {
	next := c.from
	fillUpTo := func(end kv.SeqNum) error {
		for next < end {
			gap := entry{kind: entryWrites, base: next, units: uint32(min(end-next, 1<<31))}
			if err := add(gap.encode()); err != nil {
				return err
			}
			next = gap.last() + 1
		}
		return nil
	}
	err := log.Replay(c.from, func(r wal.Record) error {
		if err := fillUpTo(r.Base); err != nil {
			return err
		}
		taken := entry{kind: entryWrites, base: r.Base, units: r.Units, payload: r.Payload}
		next = taken.last() + 1
		return add(taken.encode())
	})
	if err != nil {
		return err
	}
	return fillUpTo(c.last + 1)
}

// removeSegments deletes the files of the log that have such names, durably.
func (e *Engine) removeSegments(which func(name string) bool) error {
	dir := descriptor.LogDir(e.dir)
	names, err := e.opts.FS.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // what opens the log says so
	}
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		if which(name) {
			if err := e.opts.FS.Remove(path.Join(dir, name)); err != nil {
				return err
			}
			removed = true
		}
	}
	if !removed {
		return nil
	}
	return e.opts.FS.SyncDir(dir)
}
