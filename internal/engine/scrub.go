package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/verify"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

// ScrubStep is how far a scrub has come, or a place that it found damaged.
type ScrubStep struct {
	Files       int   // verified so far
	Done, Total int64 // bytes; files that are written meanwhile change neither
	Damage      *event.Damage
}

// Scrub reads every file of the running store and verifies every checksum: STORE, CLOCK, the
// manifests, all tables and value files that were there when it began, and the log. It
// reads at most rate bytes per second, as a pace.Bucket says; 0 means no bound. Two things are read
// at once, because others wait for that or space is held: a manifest, and the newest segment of the
// log, after which the scrub rests. It calls told after each block, and
// for each place that is damaged; damage does not end it. In contrast to inspect.Check it
// does not compare pointers into value files with the values.
//
// It reads through the page cache, so it may not notice that the disk has lost what is cached.
//
// Errors: *kv.OverloadError if another call of Scrub is under way; kv.ErrClosed; the error of
// ctx. Damage is no error.
func (e *Engine) Scrub(ctx context.Context, rate int64, told func(ScrubStep)) error {
	defer e.events.Guard()
	ctx, leave, err := e.scrubs.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if !e.scrubs.asked.TryLock() {
		return &kv.OverloadError{Reason: "scrub", RetryAfter: time.Second}
	}
	defer e.scrubs.asked.Unlock()
	return e.scrub(ctx, pace.New(rate), told)
}

// scrubs are the scrubs of an engine and what they have done.
type scrubs struct {
	asked sync.Mutex // held by a call of Scrub

	mu      sync.Mutex
	life    context.Context
	end     context.CancelFunc
	closed  bool
	running sync.WaitGroup
	stats   ScrubStats
}

// ScrubStats counts what scrubs did since the store was opened.
type ScrubStats struct {
	Bytes  uint64    // verified
	Passes uint64    // that came to their end
	Last   time.Time // when the last of them ended; zero: none has
	// Done and Total are the bytes of the pass that the background is in; zero: in none.
	Done, Total int64
}

func (s *scrubs) init() { s.life, s.end = context.WithCancel(context.Background()) }

// enter returns a context that ends when the engine is closed, which waits for leave.
func (s *scrubs) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, kv.ErrClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(s.life, func() { cancel(kv.ErrClosed) })
	return ctx, func() {
		unlink()
		cancel(nil)
		s.running.Done()
	}, nil
}

// close ends all scrubs and waits for them.
func (s *scrubs) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.running.Wait()
}

func (s *scrubs) read() ScrubStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *scrubs) update(change func(*ScrubStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// scrub verifies all files once.
func (e *Engine) scrub(ctx context.Context, bucket *pace.Bucket, told func(ScrubStep)) error {
	s := scrub{e: e, ctx: ctx, pace: bucket, fs: bucket.Reads(ctx, e.opts.FS), told: told}
	s.step.Total = e.scrubBytes()
	if err := s.run(); err != nil {
		return err
	}
	s.step.Done = s.step.Total
	told(s.step)
	e.scrubs.update(func(stats *ScrubStats) { stats.Passes, stats.Last = stats.Passes+1, time.Now() })
	return nil
}

// scrubBytes returns the bytes that a scrub has to read.
func (e *Engine) scrubBytes() (sum int64) {
	for _, p := range e.partitions {
		ref := p.AcquireFiles()
		sum += int64(ref.Bytes() + ref.ValueFileBytes())
		ref.Release()
	}
	switch {
	case e.member != nil:
		sum += e.member.log.Stats().LiveBytes
	case e.log != nil: // not read-only
		sum += e.log.Stats().LiveBytes
	}
	return sum
}

// scrub is one pass over all files.
type scrub struct {
	e    *Engine
	ctx  context.Context
	pace *pace.Bucket
	fs   vfs.FS // reads take from pace
	told func(ScrubStep)
	step ScrubStep
}

// run begins with a partition chosen at random. So passes that the process never lives to
// end cover all files in time.
func (s *scrub) run() error {
	e := s.e
	store := descriptor.Path(e.dir)
	d, err := descriptor.Read(s.fs, e.dir)
	if err == nil && (d.StoreID != e.descriptor.StoreID || d.Partitions != e.descriptor.Partitions) {
		err = kv.Corruptf(store, -1, "is the descriptor of another store, or an older one")
	}
	if err := s.verified(store, err); err != nil {
		return err
	}
	_, err = descriptor.ReadClock(s.fs, e.dir, e.descriptor.StoreID)
	if !errors.Is(err, fs.ErrNotExist) { // no key ever had an expiry
		if err := s.verified(descriptor.ClockPath(e.dir), err); err != nil {
			return err
		}
	}
	if e.member != nil {
		_, err := descriptor.ReadNode(s.fs, e.dir, e.descriptor.StoreID)
		if !errors.Is(err, fs.ErrNotExist) { // embedded, or in a test
			if err := s.verified(descriptor.NodePath(e.dir), err); err != nil {
				return err
			}
		}
	}
	if err := s.log(); err != nil {
		return err
	}
	first := rand.IntN(len(e.partitions))
	for i := range e.partitions {
		if err := s.partition(e.partitions[(first+i)%len(e.partitions)]); err != nil {
			return err
		}
	}
	return nil
}

// partition verifies the manifest of a partition and the files that it names now, by their
// numbers. It holds one file at a time, so that compaction can delete the others; newer ones
// were verified when they were written.
func (s *scrub) partition(p *partition.Partition) error {
	dir := descriptor.PartitionDir(s.e.dir, p.ID())
	err := p.VerifyManifest()
	if err == nil {
		s.e.damages.forgetManifest(path.Base(dir))
	}
	if err := s.verified(path.Join(dir, manifest.CurrentName), err); err != nil {
		return err
	}
	ref := p.AcquireFiles()
	newest := kv.FileNum(0)
	for _, num := range ref.Files() {
		newest = max(newest, num)
	}
	ref.Release()
	for num, more := kv.FileNum(0), true; more; {
		var err error
		if num, more, err = s.fileAfter(p, dir, num, newest); err != nil {
			return err
		}
	}
	return nil
}

// fileAfter verifies the file with the lowest number above num and up to newest, and returns
// its number.
func (s *scrub) fileAfter(p *partition.Partition, dir string, num, newest kv.FileNum) (_ kv.FileNum, more bool, err error) {
	ref := p.AcquireFiles()
	defer ref.Release()
	next := newest + 1
	var table *kv.TableMeta
	var values *kv.ValueFileMeta
	for t := range ref.Tables() {
		if t.Num > num && t.Num < next {
			next, table = t.Num, t
		}
	}
	for i := range ref.Values {
		if m := &ref.Values[i]; m.Num > num && m.Num < next {
			next, table, values = m.Num, nil, m
		}
	}
	id := uint32(p.ID())
	switch {
	case table != nil:
		name := path.Join(dir, manifest.TableName(next))
		err = verify.Table(s.ctx, s.fs, name, id, table, s.progress, nil)
		p.Verified(next, err)
		return next, true, s.verified(name, err)
	case values != nil:
		name := path.Join(dir, manifest.ValuesName(next))
		err = verify.Values(s.ctx, s.fs, name, id, values, s.progress)
		p.Verified(next, err)
		return next, true, s.verified(name, err)
	}
	return 0, false, nil
}

// log verifies the segments of the log, each on its own. Of the last one, it verifies what is synced;
// that of the log of a cluster is left out, and so is a log that waits for disk space.
func (s *scrub) log() error {
	e := s.e
	if e.member != nil {
		through := func(fsys vfs.FS) vfs.FS { return s.pace.Reads(s.ctx, fsys) }
		return s.ended(e.member.log.Verify(s.ctx, through, s.progress, s.verified))
	}
	if e.readOnly.Load() || e.log == nil {
		return nil
	}
	name := func(f *wal.SnapshotFile) string { return path.Join(descriptor.LogDir(e.dir), f.Name) }
	hold := e.log.Hold()
	defer hold.Release()
	sealed, active := hold.Segments()
	if active == nil {
		return nil
	}
	if err := e.log.WaitSynced(s.ctx, e.log.End()); err != nil {
		return s.ended(err)
	}
	if err := s.verified(name(active), active.Verify(s.ctx)); err != nil {
		return err
	}
	missing := make([]error, len(sealed))
	for i := range sealed {
		_, missing[i] = e.opts.FS.Stat(name(&sealed[i]))
	}
	hold.Release() // a segment that is missing from now on may have been deleted
	s.progress(active.Size)
	if err := s.pace.Take(s.ctx, active.Size); err != nil {
		return err
	}
	for i := range sealed {
		if err := s.segment(name(&sealed[i]), &sealed[i], missing[i]); err != nil {
			return err
		}
	}
	return nil
}

// segment verifies a segment of the log that has a successor, unless it is missing.
func (s *scrub) segment(name string, f *wal.SnapshotFile, missing error) error {
	if missing != nil {
		return s.verified(name, missing)
	}
	num, ok := wal.SegmentNumber(f.Name)
	if !ok {
		return fmt.Errorf("scrub %s: the log names a file that is no segment", name)
	}
	return s.verified(name, verify.Segment(s.ctx, s.fs, name, s.e.descriptor.StoreID, num, s.progress))
}

// progress is told of bytes that were verified.
func (s *scrub) progress(bytes int64) {
	s.step.Done = min(s.step.Done+bytes, s.step.Total)
	s.e.scrubs.update(func(stats *ScrubStats) { stats.Bytes += uint64(bytes) })
	s.told(s.step)
}

// verified notes the result of one file. It returns an error only if the scrub ends.
func (s *scrub) verified(name string, err error) error {
	if err := s.ended(nil); err != nil {
		return err
	}
	s.step.Files++
	for _, d := range s.e.damaged(name, err) {
		step := s.step
		step.Damage = &d
		s.told(step)
	}
	return nil
}

// ended returns why the scrub ends: its context, or else err.
func (s *scrub) ended(err error) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}
