package engine

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
)

// checkAlone refuses to open the store of a member of a cluster as that of a single node, which
// would not find its log.
func (e *Engine) checkAlone() error {
	if !descriptor.HasReplicatedLog(e.opts.FS, e.dir) {
		return nil
	}
	return fmt.Errorf("%w: the store is a member of a cluster: open it as that", kv.ErrInvalidArgument)
}

// checkConverted refuses to open the store of a single node as that of a member, unless
// ConvertToMember has decided so.
func (e *Engine) checkConverted() error {
	if !descriptor.HasOwnLog(e.opts.FS, e.dir) {
		return nil
	}
	_, err := descriptor.ReadNode(e.opts.FS, e.dir, e.descriptor.StoreID)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: the store is that of a single node: kvd cluster init --from-existing makes it the first node of a cluster", kv.ErrInvalidArgument)
	}
	return err
}

// removeOwnLog deletes the log of the time before the store became a member: see
// ConvertToMember. Everything in it is in tables.
func (e *Engine) removeOwnLog(at *Position) error {
	if !descriptor.HasOwnLog(e.opts.FS, e.dir) {
		return nil
	}
	if at == nil {
		return kv.Corruptf(descriptor.NodePath(e.dir), -1, "the store is that of a single node, and does not say where in the log of the cluster it stands: the file is of another store")
	}
	return e.removeSegments(descriptor.IsOwnSegment)
}

// openMemberLog opens the log of a member, before the partitions: it says whether a checkpoint
// of another node takes their place.
func (e *Engine) openMemberLog() error {
	if err := e.checkConverted(); err != nil {
		return err
	}
	if err := descriptor.CheckSame(e.opts.FS, e.dir); err != nil {
		return err
	}
	begin, err := e.member.log.Open(LogFiles{
		FS: e.opts.FS, Dir: descriptor.LogDir(e.dir), Data: e.dir, SegmentBytes: e.opts.SegmentBytes,
		Created: e.recovery.Created, Boot: e.epoch,
	})
	if err != nil || e.recovery.Created {
		return err
	}
	return installReceived(e.opts.FS, e.dir, e.descriptor, begin)
}

// openMember takes the place of openLog: the log is open, and continues in startMember.
func (e *Engine) openMember() (err error) {
	if e.recovery.Created {
		if err := e.writeDescriptor(); err != nil {
			return err
		}
	}
	if e.member.from, e.member.newest, err = e.savedPositions(); err != nil {
		return err
	}
	if err := e.removeOwnLog(e.member.from); err != nil {
		return err
	}
	e.recovery.NextSeq = 1
	if at := e.member.from; at != nil { // its number may be that of a record without a key, which is in no table
		e.recovery.NextSeq = at.Seq + 1
	}
	for _, p := range e.partitions {
		e.recovery.NextSeq = max(e.recovery.NextSeq, p.FlushedSeq()+1, p.MaxSeq()+1)
	}
	e.places, err = findPlaces(e.opts.FS, e.dir, e.descriptor.Partitions)
	return err
}

// startMember lets the log continue after the lowest position that a partition has saved, and
// starts the maintenance loop.
func (e *Engine) startMember() error {
	if err := e.member.start(); err != nil {
		return err
	}
	e.maintenance.done.Go(e.maintainMember)
	return nil
}

// savedPositions returns the lowest position that a partition has saved, nil if one has saved
// none, and the highest, nil if none has saved any.
func (e *Engine) savedPositions() (lowest, highest *Position, err error) {
	all := true
	for _, p := range e.partitions {
		at, err := savedPosition(p)
		switch {
		case err != nil:
			return nil, nil, err
		case at == nil:
			all = false
			continue
		}
		if lowest == nil || at.Index < lowest.Index {
			lowest = at
		}
		if highest == nil || at.Index > highest.Index {
			highest = at
		}
	}
	if !all {
		lowest = nil
	}
	return lowest, highest, nil
}
