package daemon

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/admin"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/replica"
)

// journal turns events of the store into log lines and counts. Lines name files, numbers and
// causes, never values; of keys only the bounds of a damaged place.
type journal struct {
	log *zap.Logger

	corruptions, backgroundErrors, setAside atomic.Uint64
	tailDropped                             atomic.Int64
	recovery                                atomic.Int64
	failed                                  sync.Once
	panicOnce                               sync.Once

	mu struct {
		sync.Mutex
		stalled map[string]time.Duration
		since   map[string]time.Time // begin of each stall in progress, by reason
	}
}

func newJournal(log *zap.Logger) *journal {
	j := &journal{log: log}
	j.mu.stalled = make(map[string]time.Duration)
	j.mu.since = make(map[string]time.Time)
	return j
}

// listener returns the listener for the engine.
func (j *journal) listener() *event.Listener {
	return &event.Listener{
		Flush:           j.flush,
		Compaction:      j.compaction,
		Corruption:      func(error) { j.corruptions.Add(1) },
		Damaged:         j.damaged,
		BackgroundError: j.backgroundError,
		Failed:          j.failure,
		TailDropped:     j.tailDrop,
		SegmentCreated:  func(s event.Segment) { j.log.Debug("log segment created", zap.Uint64("segment", s.Num)) },
		SegmentRemoved:  func(s event.Segment) { j.log.Debug("log segment removed", zap.Uint64("segment", s.Num)) },
		Stall:           j.stall,
		ReadOnly:        j.readOnly,
		FileSetAside:    j.fileSetAside,
		Recovered:       j.recovered,
		Archive:         j.archive,
		Panicked:        j.panicked,
	}
}

func (j *journal) flush(e event.Flush) {
	j.log.Debug("memtable flushed", zap.Int("partition", e.Partition), zap.Uint64("entries", e.Entries),
		zap.Uint64("bytes", e.Bytes), zap.Int("tables", e.Tables), zap.Duration("took", e.Took), zap.Error(e.Err))
}

func (j *journal) compaction(e event.Compaction) {
	j.log.Debug("compacted", zap.Int("partition", e.Partition), zap.String("into", e.Kind),
		zap.Int("tables_in", e.InputTables), zap.Int("tables_out", e.OutputTables),
		zap.Uint64("bytes_in", e.InputBytes), zap.Uint64("bytes_out", e.OutputBytes),
		zap.Uint64("dropped", e.Dropped), zap.Duration("took", e.Took), zap.Error(e.Err))
}

// damaged logs a damaged place, once. Logs have no keys; kvd scrub shows administrators which
// keys cannot be read.
func (j *journal) damaged(d event.Damage) {
	j.log.Error("stored data is damaged: some keys cannot be read, everything else is served; kvd scrub lists all damage, with the keys of tables",
		zap.String("file", d.File), zap.String("kind", d.Kind), zap.Int64("offset", d.Offset), zap.String("reason", d.Reason))
}

func (j *journal) backgroundError(err error) {
	j.backgroundErrors.Add(1)
	j.log.Error("background work failed and will be retried", zap.Error(err))
}

// failure logs the failure of the store, once: several goroutines may report it. That a
// checkpoint is to be installed is none: see process.installs.
func (j *journal) failure(err error) {
	if errors.Is(err, replica.ErrInstall) {
		return
	}
	j.failed.Do(func() { j.log.Error("the store stopped for good", zap.Error(err)) })
}

// panicked ends the process. The goroutine may hold locks or be a leader, so that other
// goroutines wait for it, and what it guards may be half changed. So the store can neither
// be closed in order nor acknowledge anything. Opening it again recovers what is durable,
// as after kill -9.
//
// Goroutines that panic meanwhile wait here for the end.
func (j *journal) panicked(cause any, stack []byte) {
	j.panicOnce.Do(func() {
		j.log.Error("the engine panicked, which is a bug: the process ends at once; please report this line",
			zap.String("panic", fmt.Sprint(cause)), zap.ByteString("stack", stack))
		os.Exit(ExitBug)
	})
}

func (j *journal) tailDrop(e event.TailDrop) {
	j.tailDropped.Add(e.Bytes)
	j.log.Warn("dropped a torn write at the end of the log; it was never acknowledged as synced",
		zap.String("file", e.File), zap.Int64("offset", e.Off), zap.Int64("bytes", e.Bytes))
}

func (j *journal) stall(e event.Stall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	since, running := j.mu.since[e.Reason]
	switch {
	case e.Begin && !running:
		j.mu.since[e.Reason] = time.Now()
		j.log.Warn("writes are slowed because background work lags", zap.String("reason", e.Reason), zap.Uint64("bytes_per_second", e.Rate))
	case !e.Begin:
		// The reason may have changed meanwhile: pacing ends for all reasons at once.
		for reason, since := range j.mu.since {
			j.mu.stalled[reason] += time.Since(since)
			delete(j.mu.since, reason)
		}
		if running {
			j.log.Info("writes are no longer slowed", zap.Duration("took", time.Since(since)))
		}
	}
}

// readOnly logs that the store stops taking puts, and that it takes them again.
func (j *journal) readOnly(e event.ReadOnly) {
	free, resume := zap.Uint64("free_bytes", e.Free), zap.Uint64("resume_at_bytes", e.Resume)
	switch {
	case e.Begin && e.Resume == 0: // a file system that is read-only itself
		j.log.Warn("the store is read-only: puts and deletes are refused, reads continue", zap.String("reason", e.Reason), zap.Error(e.Cause))
		return
	case e.Begin:
		j.log.Warn("the store is read-only: puts are refused, reads and deletes continue", zap.String("reason", e.Reason), free, resume, zap.Error(e.Cause))
		return
	}
	j.log.Info("the store takes writes again", free, zap.Duration("took", e.Took))
}

func (j *journal) fileSetAside(e event.SetAside) {
	j.setAside.Add(1)
	j.log.Warn("an unknown file was moved to lost+found", zap.String("from", e.From), zap.String("to", e.To))
}

// archive logs that the log cannot be archived, and can again.
func (j *journal) archive(e event.Archive) {
	switch {
	case e.Gap != "":
		j.log.Error("a part of the commit log will be missing in the archive; no restore crosses it, so make a backup now",
			zap.String("reason", e.Gap), zap.Error(e.Err))
	case e.Recovered:
		j.log.Info("the commit log is archived again")
	default:
		j.log.Error("the commit log cannot be archived; its segments are kept and it is tried again", zap.Error(e.Err))
	}
}

func (j *journal) recovered(e event.Recovered) {
	j.recovery.Store(int64(e.Took))
	j.log.Info("store is open", zap.Int("partitions", e.Partitions), zap.Int("segments", e.Segments),
		zap.Uint64("replayed", e.Records), zap.Uint64("version", uint64(e.LastSeq)), zap.Duration("took", e.Took))
}

// incidents returns the counts; stalls in progress count up to now.
func (j *journal) incidents() admin.Incidents {
	j.mu.Lock()
	defer j.mu.Unlock()
	stalled := map[string]time.Duration{"memtables": 0, "deltas": 0}
	for reason, d := range j.mu.stalled {
		stalled[reason] += d
	}
	for reason, since := range j.mu.since {
		stalled[reason] += time.Since(since)
	}
	return admin.Incidents{
		Corruptions: j.corruptions.Load(), BackgroundErrors: j.backgroundErrors.Load(),
		FilesSetAside: j.setAside.Load(),
		TailDropped:   j.tailDropped.Load(), Recovery: time.Duration(j.recovery.Load()), Stalled: stalled,
	}
}
