package engine

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"time"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// Open opens the store in dir, or creates one. It replays the log, and returns
// when everything acknowledged before is readable and durable.
//
// If the file system is read-only, or becomes so during Open, the store is opened as with
// Options.ReadOnly: everything acknowledged is readable, and as durable as it was. ReadOnly
// returns the reason, with which writes fail until the store is closed and opened again.
//
// Errors: vfs.ErrLocked if another process has the store open; a
// *kv.CorruptionError if a file does not hold what was written;
// kv.ErrUnsupportedVersion if a newer kvd wrote it, and then nothing has changed;
// kv.ErrInvalidArgument for
// invalid options or another partition count than the store has. On error
// nothing is left running or locked.
func Open(dir string, o Options) (*Engine, error) {
	defer o.Events.Guard()
	asked := o
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := formats.Check(o.FS, dir); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	if o.ReadOnly {
		return openAs(dir, o, &asked, nil)
	}
	unwritable := ReadOnlyCause(o.FS, dir)
	e, err := openAs(dir, o, &asked, unwritable)
	if err != nil && unwritable == nil {
		if unwritable = ReadOnlyCause(o.FS, dir); unwritable != nil {
			e, err = openAs(dir, o, &asked, unwritable)
		}
	}
	return e, err
}

// openAs is Open for a given state of the file system: unwritable is the error that shows
// that it is read-only, or nil.
func openAs(dir string, o Options, asked *Options, unwritable error) (_ *Engine, err error) {
	begin := time.Now()
	o.ReadOnly = o.ReadOnly || unwritable != nil
	e, err := newLocked(dir, o, unwritable)
	if err != nil {
		return nil, err
	}
	if err := e.openDisk(asked); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), e.lock.Close())
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), e.tearDown())
	}
	e.recovery.Took = time.Since(begin)
	if err := e.startArchiver(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), e.tearDown())
	}
	e.start()
	if e.member != nil {
		if err := e.startMember(); err != nil {
			return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), e.Close())
		}
	}
	return e, nil
}

// newLocked returns an engine of which nothing is open but the lock.
func newLocked(dir string, o Options, unwritable error) (_ *Engine, err error) {
	e := &Engine{dir: path.Clean(dir), opts: o, unwritable: unwritable, requestIDs: commit.NewRequestWindow(o.requestIDs)}
	e.events = e.listen(o.Events)
	e.opts.Events = e.events
	e.scrubs.init()
	e.singles.New = newSingle
	if o.Replicated != nil {
		e.member = newMember(e, o.Replicated)
	}
	e.failure.ch = make(chan struct{})
	e.maintenance.wake = make(chan struct{}, 1)
	e.maintenance.stop = make(chan struct{})
	e.disk.wake = make(chan struct{}, 1)
	if e.epoch, err = newEpoch(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := e.lockStore(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return e, nil
}

// lockStore creates the directory if it is missing, checks the access to it, and locks the
// store.
func (e *Engine) lockStore() (err error) {
	fsys := e.opts.FS
	if e.opts.ReadOnly && e.unwritable == nil {
		e.lock, err = descriptor.LockShared(fsys, e.dir)
		return err
	}
	if e.unwritable != nil {
		if err := checkAccess(fsys, e.dir); err != nil {
			return err
		}
		e.lock, err = descriptor.LockShared(fsys, e.dir)
		return err
	}
	if err := makeDurable(fsys, e.dir, e.events); err != nil {
		return err
	}
	if err := checkAccess(fsys, e.dir); err != nil {
		return err
	}
	e.lock, err = descriptor.Lock(fsys, e.dir)
	return err
}

// makeDurable creates a directory and its parents, so that a power cut removes none of
// them. Until a store exists in the directory it cannot know which of them an earlier
// attempt created and was killed before it synced, so it syncs all that it has permission
// for.
func makeDurable(fsys vfs.FS, dir string, events *event.Listener) error {
	if _, err := fsys.Stat(descriptor.Path(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	parents := vfs.Parents(dir)
	return together(events, len(parents), func(i int) error {
		if err := fsys.SyncDir(parents[i]); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil
	})
}

// open opens all parts of the store, up to where start can be called.
func (e *Engine) open() error {
	if err := e.openShared(); err != nil {
		return err
	}
	if e.member != nil {
		if err := e.openMemberLog(); err != nil {
			return err
		}
	}
	if err := e.openPartitions(0, e.descriptor.Partitions); err != nil {
		return err
	}
	e.scheduler.all = e.partitions
	return e.openLog()
}

// openShared opens what the partitions share, except for the log.
func (e *Engine) openShared() error {
	if err := e.openDescriptor(); err != nil {
		return err
	}
	n := e.descriptor.Partitions
	e.opts.limits.RangeCopies = n
	e.cache = sstable.NewCache(e.opts.CacheBytes)
	var err error
	if e.opts.ReadOnly || e.member != nil {
		var saved *descriptor.Clock
		e.clock, saved, err = readClock(e.opts.FS, e.dir, e.descriptor.StoreID, e.opts.time)
		if saved != nil && e.unwritable != nil {
			e.clock.hold(saved)
		}
	} else {
		e.clock, err = openClock(e.opts.FS, e.dir, e.descriptor.StoreID, e.opts.time)
	}
	if err != nil {
		return err
	}
	e.sequencer = newSequencer(e.clock.Now, e.failure.ch, e.Err)
	if e.now = e.clock.Now; e.member != nil {
		e.now = e.sequencer.time.Load
		e.sequencer.now = e.now
	}
	e.snapshots = newSnapshots(&e.opts, e.sequencer)
	e.budget = e.emptyBudget(e.opts.MemtableBytes)
	e.across = newInflight(e.opts.share(n)*int64(n), "batches_in_flight")
	e.large = newInflight(largeWriteBytes, "large_writes_in_flight")
	e.scheduler = newScheduler(e.budget, n)
	e.scheduler.failed, e.scheduler.report, e.scheduler.noSpace = e.fail, e.backgroundError, e.spaceRefused
	e.scheduler.flushed, e.scheduler.rests, e.scheduler.events = e.wakeMaintenance, e.rests, e.events
	return nil
}

// emptyBudget returns the budget of memtables that are empty.
func (e *Engine) emptyBudget(limit int64) *budget {
	b := newBudget(limit, e.descriptor.Partitions)
	b.all = func() []*partition.Partition { return e.partitions }
	b.onPace = e.paceChanged
	return b
}

// openPartitions opens the partitions from first to before end.
func (e *Engine) openPartitions(first, end int) error {
	opened := make([]*partition.Partition, end-first)
	err := together(e.events, len(opened), func(i int) (err error) {
		opened[i], err = partition.Open(e.partitionOptions(first + i))
		return err
	})
	orchestrators := e.orchestrators()
	for _, p := range opened {
		if p == nil { // its error is in err
			continue
		}
		e.partitions = append(e.partitions, p)
		if e.member != nil {
			p.Attach(memberWriter{e.member, p.ID()})
			continue
		}
		c := commit.New(e.commitOptions(p, orchestrators))
		p.Attach(c)
		e.own.coordinators = append(e.own.coordinators, c)
	}
	return err
}

func (e *Engine) partitionOptions(id int) partition.Options {
	o := &e.opts
	options := partition.Options{
		ID: id, FS: o.FS, ReadOnly: o.ReadOnly, AllowDamaged: o.AllowDamaged, Dir: descriptor.PartitionDir(e.dir, id),
		Now: e.now, Sequencer: e.sequencer, Budget: e.budget, Scheduler: e.scheduler, Cache: e.cache, Events: o.Events,
		Reads:      o.Reads,
		FlushBytes: o.MemtableBytes / 2, FlushKeys: o.FlushKeys,
		ValueThreshold: o.ValueThreshold, TableBytes: o.tableBytes, Table: o.table, Compaction: o.compaction, AtRest: e.atRest.Load,
	}
	switch {
	case e.member != nil:
		options.Position = func(flushed kv.SeqNum) []byte { return e.member.positionAt(id, flushed) }
	case e.converts != nil:
		options.Position = func(kv.SeqNum) []byte { return e.converts.position }
	}
	return options
}

// orchestrators returns the orchestrators of a set of coordinators: one for two processors, as
// far as there are partitions. With more of them callers that write to several partitions share
// less of the work; with fewer, processors could wait for the leader of an orchestrator.
func (e *Engine) orchestrators() []*commit.Orchestrator {
	all := make([]*commit.Orchestrator, min(e.descriptor.Partitions, (runtime.GOMAXPROCS(0)+1)/2))
	for i := range all {
		all[i] = commit.NewOrchestrator(e.events, &e.company)
	}
	return all
}

func (e *Engine) commitOptions(p *partition.Partition, orchestrators []*commit.Orchestrator) commit.Options {
	now := commit.Clocked(e.now)
	if e.member != nil {
		now = e.member.numbered.read
	}
	share := e.opts.share(e.descriptor.Partitions)
	writes := e.opts.Writes
	if writes.QueueBytes == 0 {
		writes.QueueBytes = int(share)
	}
	return commit.Options{
		ID: p.ID(), Tree: p, Applied: e.sequencer, Now: now,
		Orchestrator: orchestrators[p.ID()*len(orchestrators)/e.descriptor.Partitions],
		Writes:       writes, InflightBytes: share, RequestIDs: e.requestIDs,
	}
}

// openDescriptor reads STORE, or creates everything of a new store but STORE. openLog
// writes STORE last, so a store that has it is complete, and a creation that a crash
// interrupted starts over.
func (e *Engine) openDescriptor() error {
	d, err := descriptor.Read(e.opts.FS, e.dir)
	if err == nil {
		e.descriptor = d
		if err := checkPartitions(d.Partitions, e.opts.Partitions); err != nil {
			return err
		}
		if err := e.checkDirs(); err != nil || e.opts.ReadOnly {
			return err
		}
		// The process that created it may have been killed before it synced the name.
		return e.opts.FS.SyncDir(e.dir)
	}
	if !errors.Is(err, fs.ErrNotExist) || e.opts.ReadOnly {
		return err
	}
	if err := descriptor.CheckFilled(e.opts.FS, e.dir); err != nil {
		return err
	}
	e.recovery.Created = true
	e.descriptor = descriptor.Descriptor{Partitions: e.opts.Partitions}
	if e.descriptor.Partitions == 0 {
		e.descriptor.Partitions = DefaultPartitions()
	}
	if err := e.clearUnfinished(); err != nil {
		return err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	e.descriptor.StoreID = binary.LittleEndian.Uint64(id[:])
	err = together(e.events, e.descriptor.Partitions, func(id int) error { return partition.Create(e.partitionOptions(id)) })
	if err != nil {
		return err
	}
	if err := e.opts.FS.MkdirAll(descriptor.LogDir(e.dir)); err != nil {
		return err
	}
	return e.opts.FS.SyncDir(e.dir)
}

// clearUnfinished removes the log of a creation that a crash interrupted, since it has
// another store id. Such a log is empty, and such partitions have no tables. If they hold
// anything, STORE existed and was lost, which is damage. It notes the partitions above the
// partition count, of a creation with more.
func (e *Engine) clearUnfinished() error {
	lost := func(what string) error {
		return kv.Corruptf(descriptor.Path(e.dir), -1, "file is missing, but %s; restore the file: the data cannot be interpreted without it", what)
	}
	names, err := e.opts.FS.List(e.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, ok := descriptor.ParsePartition(name)
		if !ok {
			continue
		}
		v, err := manifest.Load(e.opts.FS, path.Join(e.dir, name), uint32(id))
		if err == nil && v.FlushedSeq > 0 {
			return lost(name + " holds tables")
		}
		if id < e.descriptor.Partitions {
			continue // Create continues a creation that was interrupted, or refuses
		}
		empty, err := manifest.Unused(e.opts.FS, path.Join(e.dir, name))
		if err != nil {
			return err
		}
		if !empty {
			return lost(name + " is above the partition count asked for, and was in use")
		}
		e.surplus = append(e.surplus, path.Join(e.dir, name))
	}
	segments, err := e.opts.FS.List(descriptor.LogDir(e.dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range segments {
		if descriptor.IsReplicatedSegment(name) {
			continue // the replicated log finds out itself whether it is empty
		}
		file := path.Join(descriptor.LogDir(e.dir), name)
		empty, err := wal.Empty(e.opts.FS, file)
		if err != nil {
			return err
		}
		if !empty {
			return lost(file + " holds writes")
		}
		if err := e.opts.FS.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// logOptions returns the options of the log. All partitions are open.
func (e *Engine) logOptions() wal.Options {
	var least kv.SeqNum
	for _, p := range e.partitions {
		least = max(least, p.MaxSeq(), p.FlushedSeq())
	}
	return wal.Options{
		FS: e.opts.FS, Dir: descriptor.LogDir(e.dir), StoreID: e.descriptor.StoreID,
		SegmentBytes: e.opts.SegmentBytes, NoSpace: e.spaceRefused, Refusal: e.refusal, MinSeq: least, Archive: e.opts.Archive.Dir != "",
		Fresh: e.recovery.Created, Events: e.opts.Events,
	}
}

// openLog replays the log into the partitions and, for a new store, writes STORE.
func (e *Engine) openLog() error {
	if e.member != nil {
		return e.openMember()
	}
	if err := e.checkAlone(); err != nil {
		return err
	}
	if !e.opts.ReadOnly { // of a conversion that was interrupted
		if err := e.removeSegments(descriptor.IsReplicatedSegment); err != nil {
			return err
		}
	}
	o := e.logOptions()
	var err error
	if e.opts.ReadOnly {
		e.recovery.Recovery, err = wal.Replay(o, e.replay)
	} else {
		e.log, e.recovery.Recovery, err = wal.Open(o, e.replayWithinBudget)
	}
	if err != nil {
		return err
	}
	recovered := &e.recovery.Recovery
	if e.firstSeq == 0 {
		e.firstSeq = recovered.NextSeq
	}
	if e.recovery.Created {
		if err := e.writeDescriptor(); err != nil {
			return err
		}
	}
	if e.replayFrom > 0 {
		if err := e.replayRest(); err != nil {
			return fmt.Errorf("replay the commit log: %w", err)
		}
	}
	e.places, err = findPlaces(e.opts.FS, e.dir, e.descriptor.Partitions)
	return err
}

// writeDescriptor writes STORE, which completes the creation of a store. Before that it removes the
// partitions that an interrupted creation left above the partition count: with STORE they would be
// taken for partitions that STORE does not know (checkDirs).
func (e *Engine) writeDescriptor() error {
	for _, dir := range e.surplus {
		if err := manifest.RemoveUnused(e.opts.FS, dir); err != nil {
			return err
		}
	}
	if len(e.surplus) > 0 {
		if err := e.opts.FS.SyncDir(e.dir); err != nil {
			return err
		}
	}
	return vfs.WriteAtomic(e.opts.FS, descriptor.Path(e.dir), e.descriptor.Encode())
}

// checkPartitions refuses a partition count other than the one the store was created
// with: most keys would be looked up in the wrong partition.
func checkPartitions(has, asked int) error {
	if asked == 0 || asked == has {
		return nil
	}
	return fmt.Errorf("%w: the store was created with %d partitions and cannot be opened with %d; leave the setting out, "+
		"or export the data and import it into a new store", kv.ErrInvalidArgument, has, asked)
}

// start starts background work and makes the store ready for calls.
func (e *Engine) start() {
	last := e.recovery.NextSeq - 1
	if e.opts.ReadOnly {
		last = max(last, 1) // of an empty store too: no snapshot has version zero, and tick cannot make a version
	}
	e.sequencer.start(last)
	if e.opts.ReadOnly {
		e.readOnly.Store(true)
		for _, p := range e.partitions {
			p.StartReading(last)
		}
		e.maintenance.done.Go(e.maintainReadOnly)
	} else {
		e.own.log = e.log
		for i, p := range e.partitions {
			if e.member != nil {
				p.Start(memberLog{e}, last)
				continue
			}
			p.Start(e.log, last)
			e.own.coordinators[i].Start(e.log, e.firstSeq, last)
		}
		e.scheduler.start(e.opts.workers)
		for _, p := range e.partitions {
			e.scheduler.Ready(p)
		}
		e.watchDisk(true)
		if e.member == nil {
			e.maintenance.done.Go(e.maintain)
		}
	}
	e.startScrubbing()
	if e.events != nil && e.events.Recovered != nil {
		e.events.Recovered(event.Recovered{
			Partitions: len(e.partitions), Segments: e.recovery.Segments, Records: e.recovery.Records,
			LastSeq: e.recovery.NextSeq - 1, Took: e.recovery.Took,
		})
	}
	if e.unwritable != nil {
		e.tellReadOnly(e.unwritable)
	}
}
