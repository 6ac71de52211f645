package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// The log is replayed within the budget of the memtables, which may be smaller than when
// the log was written. Usually everything fits, and is replayed while the log is read for
// the first time. What does not fit is read again after the log has been made durable. Only
// then may it be flushed: a power cut must not leave a part of a batch in a table and take
// the rest with the log. Flushes make room as they do for writes.
//
// A crash during replay leaves tables that hold a part of the log, partition by partition,
// and the whole log; the next recovery skips what is in tables.
//
// If nothing can be flushed, since the store is opened read-only or the disk is full,
// everything is kept in memory, beyond the budget.

// replayWithinBudget hands the operations of one record to their partitions, unless the
// memtables are full: see replayRest.
func (e *Engine) replayWithinBudget(r wal.Record) error {
	switch {
	case e.replayFrom > 0:
		return nil
	case e.budget.full():
		e.replayFrom = r.Base
		return nil
	}
	return e.replay(r)
}

// replayRest replays what replayWithinBudget has left.
func (e *Engine) replayRest() error {
	e.sequencer.start(e.recovery.NextSeq - 1) // a flush waits until what it writes is visible
	flush := e.log.Suspended() == nil
	return e.log.Replay(e.replayFrom, func(r wal.Record) error {
		if flush && e.budget.full() {
			err := e.makeRoomForReplay(r.Base)
			switch {
			case err == nil:
			case errors.Is(err, kv.ErrFailed), !vfs.CannotWrite(err):
				return err
			default:
				flush = false
				e.spaceRefused(err)
			}
		}
		return e.replay(r)
	})
}

// replay hands the operations of one record to their partitions.
func (e *Engine) replay(r wal.Record) error {
	if e.firstSeq == 0 {
		e.firstSeq = r.Base
	}
	if len(r.Payload) == 0 {
		return nil // an empty record: see tick
	}
	first := -1 // the partition of the first section
	return record.Decode(r.Payload, func(op *record.Op) error {
		if err := checkReplayed(r, op, len(e.partitions)); err != nil {
			return err
		}
		if first < 0 {
			first = op.Partition
		}
		if op.Partition == first {
			e.own.coordinators[first].Remember(r.Base, op)
		}
		e.partitions[op.Partition].Replay(r.Base, op)
		return nil
	})
}

// checkReplayed checks that an operation of a record fits into a store with so many
// partitions.
func checkReplayed(r wal.Record, op *record.Op, partitions int) error {
	if op.Partition >= partitions {
		return fmt.Errorf("operation for partition %d of %d", op.Partition, partitions)
	}
	if op.Unit >= r.Units {
		return fmt.Errorf("operation of unit %d in a record of %d", op.Unit, r.Units)
	}
	return nil
}

// makeRoomForReplay flushes the largest memtables. If the disk is too full for that, it
// gives back the ballast and the flushed part of the log, and tries again. All records
// before number next have been replayed.
func (e *Engine) makeRoomForReplay(next kv.SeqNum) error {
	err := e.flushLargest()
	if errors.Is(err, kv.ErrFailed) || !vfs.CannotWrite(err) {
		return err
	}
	e.giveBallastBack()
	flushed := next - 1
	for _, p := range e.partitions {
		if low, ok := p.UnflushedFrom(); ok {
			flushed = min(flushed, low-1)
		}
	}
	if err := e.log.Reclaim(flushed); err != nil {
		return fmt.Errorf("give log segments back: %w", err)
	}
	return e.flushLargest()
}

// flushLargest flushes the largest memtables until a quarter of the budget is free, and
// compacts partitions in which flushes have made many deltas.
func (e *Engine) flushLargest() error {
	largest := slices.Clone(e.partitions)
	slices.SortFunc(largest, func(a, b *partition.Partition) int {
		return cmp.Compare(e.budget.activeOf(b), e.budget.activeOf(a))
	})
	n := 0
	for room := e.budget.limit - e.budget.used(); n < len(largest) && room < e.budget.limit/4; n++ {
		room += e.budget.activeOf(largest[n])
	}
	return together(e.events, n, func(i int) error {
		if err := largest[i].FlushReplayed(context.Background(), e.log); err != nil {
			return err
		}
		return mergeDeltas(largest[i])
	})
}

// mergeDeltas compacts while the partition has more deltas than writers may leave without
// being slowed.
func mergeDeltas(p *partition.Partition) error {
	for p.Deltas() > deltasSoft {
		if did, err := p.Compact(context.Background()); err != nil || !did {
			return err
		}
	}
	return nil
}
