package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Compact does the most useful compaction, if one is worth its cost, and reports whether it
// did one. On error the inputs stay, and it can be tried again unless the error wraps
// kv.ErrFailed.
func (p *Partition) Compact(ctx context.Context) (did bool, err error) {
	p.merging.Lock()
	defer p.merging.Unlock()
	return p.merge(ctx, func(v *manifest.Version) (compaction.Choice, bool) {
		policy := p.opts.Compaction
		if p.opts.AtRest != nil && p.opts.AtRest() {
			policy = policy.AtRest()
		}
		return compaction.Pick(v, policy, p.known())
	})
}

// known returns what compactions know besides the Version.
func (p *Partition) known() compaction.Known {
	snapshots, now := p.sequencer.Horizon()
	return compaction.Known{
		OldestSnapshot: snapshots[0], Now: now, Ranges: p.tables.rangeTombstones, Stats: p.tables.stats, Damaged: p.damaged.has,
	}
}

// CompactAll compacts until everything is in the base that damaged tables do not keep from
// it. The first merge that reads a damaged table fails with kv.ErrCorrupt; from then on it
// is known.
func (p *Partition) CompactAll(ctx context.Context) error {
	p.merging.Lock()
	defer p.merging.Unlock()
	for {
		did, err := p.merge(ctx, func(v *manifest.Version) (compaction.Choice, bool) {
			return compaction.All(v, p.opts.Compaction, p.known())
		})
		if err != nil || !did {
			return err
		}
	}
}

// Debt estimates the bytes that compactions still have to read.
func (p *Partition) Debt() uint64 {
	s := p.acquire()
	defer s.release()
	return compaction.Debt(s.levels.version.Version, p.opts.Compaction)
}

// Deltas returns the number of deltas.
func (p *Partition) Deltas() int {
	s := p.acquire()
	defer s.release()
	return len(s.levels.deltas)
}

// merge does the compaction that choose picks. REQUIRES: merging is held.
func (p *Partition) merge(ctx context.Context, choose func(*manifest.Version) (compaction.Choice, bool)) (bool, error) {
	ctx, stop, err := p.whileOpen(ctx)
	if err != nil {
		return false, fmt.Errorf("partition %d: %w", p.id, err)
	}
	defer stop()
	if err := p.showCurrent(); err != nil {
		return true, fmt.Errorf("partition %d: %w", p.id, err)
	}
	s := p.acquire()
	defer s.release()
	choice, ok := choose(s.levels.version.Version)
	if !ok {
		return false, nil
	}
	begin := time.Now()
	var result compaction.Result
	if !choice.Drop {
		result, err = p.run(ctx, compaction.Job{
			Choice: choice,
			Open: func(t *kv.TableMeta) (kv.Iterator, error) {
				reader, err := p.openTable(t)
				if err != nil {
					return nil, err
				}
				return reader.NewIterator(sstable.IterOptions{}), nil
			},
		})
	}
	if err == nil {
		err = p.install(choice.Edit(&result))
	}
	err = p.whyEnded(err)
	dropped := result.Superseded + result.Tombstones
	if choice.Drop && err == nil {
		dropped = choice.Entries()
	}
	if p.events != nil && p.events.Compaction != nil {
		p.events.Compaction(event.Compaction{
			Partition: p.id, Kind: choice.Kind.String(),
			InputTables: len(choice.Tables()), InputBytes: choice.ReadBytes() + result.Moved,
			OutputTables: len(result.Tables), OutputBytes: result.Written(),
			Dropped: dropped, Took: time.Since(begin), Err: err,
		})
	}
	if err != nil {
		return true, fmt.Errorf("partition %d: %w", p.id, err)
	}
	p.stats.compactions.Add(1)
	p.stats.compactedBytes.Add(result.Written())
	p.stats.movedBytes.Add(result.Moved)
	return true, nil
}

// run fills in what all jobs of the partition share, and runs one. It calls
// Sequencer.Horizon last: see there.
func (p *Partition) run(ctx context.Context, job compaction.Job) (result compaction.Result, err error) {
	sweep := p.values.NewSweep()
	defer func() { err = errors.Join(err, sweep.Close()) }()
	job.Outputs = outputs{p}
	job.Values = compaction.ValueRule{Threshold: p.opts.ValueThreshold, Read: sweep.Read}
	job.Writer = p.opts.Table
	job.TableBytes = p.opts.TableBytes
	job.Rule.Snapshots, job.Rule.Now = p.sequencer.Horizon()
	result, err = compaction.Run(ctx, job)
	if errors.Is(err, kv.ErrCorrupt) {
		p.corrupt(err) // an input, or an output as it was read back
	}
	return result, err
}

// install makes an edit durable and shows it to readers. If the edit failed it removes the
// new tables.
func (p *Partition) install(edit manifest.Edit) error {
	if err := p.files.Install(edit); err != nil {
		return p.takeBack(edit, err)
	}
	return p.showCurrent()
}

// showCurrent makes readers see the current manifest version, unless they do, and no
// longer the memtables that are in its tables. It fails if a table cannot be opened. Every
// flush and compaction begins with showCurrent, so it is then tried again.
//
// The lock is held from reading the current version until it is shown: of two edits
// installed at the same time, the older must not be shown last.
func (p *Partition) showCurrent() error {
	p.showing.Lock()
	defer p.showing.Unlock()
	version := p.files.Acquire()
	if version.Num == p.state.Load().levels.version.Num {
		version.Release()
		return nil
	}
	next, err := p.openLevels(version)
	if err != nil {
		return err
	}
	var flushed int64
	err = p.replace(func(old *readState) *readState {
		keep := len(old.sealed)
		for keep > 0 && old.sealed[keep-1].table.MaxSeq() <= version.FlushedSeq {
			keep--
			flushed += old.sealed[keep].bytes
		}
		// A copy: a part of the slice would keep the flushed memtables in memory.
		return p.newReadState(old.active, slices.Clone(old.sealed[:keep]), next)
	})
	if err != nil {
		next.release()
		return err
	}
	if flushed > 0 {
		p.budget.Flushed(p, flushed)
	}
	return nil
}

// takeBack removes files that an edit should have added. After a failed write of
// the manifest the disk may name them, so then they stay.
func (p *Partition) takeBack(edit manifest.Edit, cause error) error {
	if errors.Is(cause, kv.ErrFailed) {
		return cause
	}
	for i := range edit.Added {
		cause = errors.Join(cause, outputs{p}.Remove(manifest.FileTable, edit.Added[i].Num))
	}
	for i := range edit.Values {
		cause = errors.Join(cause, outputs{p}.Remove(manifest.FileValues, edit.Values[i].Num))
	}
	return cause
}

// outputs creates the files of new tables and value files.
type outputs struct{ p *Partition }

func (o outputs) Create(kind manifest.FileKind) (vfs.File, kv.FileID, error) {
	num, err := o.p.files.NewFileNum()
	if err != nil {
		return nil, kv.FileID{}, err
	}
	f, err := o.p.opts.FS.Create(o.p.fileName(kind, num))
	return f, o.p.fileID(num), err
}

func (o outputs) Remove(kind manifest.FileKind, num kv.FileNum) error {
	return o.p.opts.FS.Remove(o.p.fileName(kind, num))
}
