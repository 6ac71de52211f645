package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/vfs"
)

// scheduler runs flushes and compactions on a fixed number of workers. Flushes have
// priority, because writers wait for them. Of the partitions that can compact, the one
// with the most to compact comes first.
//
// While rests says so, a job rests for a multiple of the time that it works: in a store at rest no
// writer waits for it, and it would take the processors from readers. A memtable of 264 MB, flushed
// because of its age by two workers at full speed, made the 99th percentile of gets 700 ms
// (bench/NOTES.md).
//
// A job that fails is tried again after a pause that doubles, up to a minute. The flushes
// and the compactions of a partition have separate pauses, since one kind may succeed
// while the other fails. An error that wraps kv.ErrFailed stops the store instead.
type scheduler struct {
	ctx     context.Context
	stop    context.CancelFunc
	budget  *budget
	rests   func() int  // how many times as long as it works a job rests
	failed  func(error) // the store must stop
	flushed func()      // a flush was installed
	report  func(error) // a job failed and will be tried again
	noSpace func(error) // likewise, because the disk is full or read-only
	events  *event.Listener
	all     []*partition.Partition // by id

	mu    sync.Mutex
	work  *sync.Cond // jobs changed, or stop
	jobs  []jobs     // by partition
	done  bool
	group sync.WaitGroup
}

// jobs is the background work of one partition.
type jobs struct {
	flush, compact task
	again          bool // a compaction is wanted since the running one began
}

type task struct {
	wanted, running bool
	pause           time.Duration // after the last failure; 0: the last run succeeded
	resting         bool          // in the pause after a failure
}

// due reports whether the task should run now.
func (t *task) due() bool { return t.wanted && !t.running && !t.resting }

const (
	firstPause = 100 * time.Millisecond
	longPause  = time.Minute
)

func newScheduler(b *budget, partitions int) *scheduler {
	s := &scheduler{budget: b, jobs: make([]jobs, partitions), rests: func() int { return 0 }}
	s.work = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// start starts the workers. The first one only flushes, so that a flush never waits for a
// long compaction.
func (s *scheduler) start(workers int) {
	for i := range workers {
		s.group.Go(func() { s.run(i == 0) })
	}
}

// close stops the workers and waits for them. A running job is cancelled.
func (s *scheduler) close() {
	s.halt()
	s.group.Wait()
}

// halt cancels running jobs and starts no more, without waiting.
func (s *scheduler) halt() {
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.stop()
	s.work.Broadcast()
}

// Ready implements partition.Scheduler.
func (s *scheduler) Ready(p *partition.Partition) {
	s.mu.Lock()
	j := &s.jobs[p.ID()]
	j.flush.wanted, j.compact.wanted, j.again = true, true, true
	s.mu.Unlock()
	s.work.Broadcast()
}

func (s *scheduler) run(flushOnly bool) {
	defer s.events.Guard()
	for {
		p, flush := s.take(flushOnly)
		if p == nil {
			return
		}
		var err error
		more := true
		if flush {
			err = s.flush(p)
		} else {
			more, err = s.compact(p)
		}
		s.finish(p, flush, more, err)
	}
}

// take waits for a job and marks it as running. It returns nil once the scheduler is
// closed.
func (s *scheduler) take(flushOnly bool) (p *partition.Partition, flush bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.done {
		for i := range s.jobs {
			if t := &s.jobs[i].flush; t.due() {
				t.wanted, t.running = false, true
				return s.all[i], true
			}
		}
		if !flushOnly {
			if best := s.furthestBehind(); best >= 0 {
				s.jobs[best].compact.running, s.jobs[best].again = true, false
				return s.all[best], false
			}
		}
		s.work.Wait()
	}
	return nil, false
}

// furthestBehind returns the partition with the most to compact among those that are due,
// or -1.
func (s *scheduler) furthestBehind() int {
	best, most := -1, uint64(0)
	for i := range s.jobs {
		if !s.jobs[i].compact.due() {
			continue
		}
		if debt := s.all[i].Debt(); best < 0 || debt > most {
			best, most = i, debt
		}
	}
	return best
}

func (s *scheduler) flush(p *partition.Partition) error {
	begin, before, rested := time.Now(), s.budget.sealed.Load(), s.rests() > 0
	if err := p.Flush(pace.WithRests(s.ctx, s.rests)); err != nil {
		return err
	}
	if drained := before - s.budget.sealed.Load(); drained > 0 && !rested && s.rests() == 0 {
		s.budget.measured(uint64(drained), time.Since(begin))
	}
	s.budget.setDeltas(s.mostDeltas())
	s.flushed()
	return nil
}

// compact reports whether there was something to do.
func (s *scheduler) compact(p *partition.Partition) (did bool, err error) {
	did, err = p.Compact(pace.WithRests(s.ctx, s.rests))
	s.budget.setDeltas(s.mostDeltas())
	return did, err
}

func (s *scheduler) mostDeltas() int64 {
	most := 0
	for _, p := range s.all {
		most = max(most, p.Deltas())
	}
	return int64(most)
}

// finish records the end of a job, reports its error, and schedules a retry. more is false
// if there was nothing to compact.
func (s *scheduler) finish(p *partition.Partition, flush, more bool, err error) {
	stopped := s.ctx.Err() != nil
	switch {
	case err == nil || stopped:
	case errors.Is(err, kv.ErrFailed):
		s.failed(err)
	case vfs.CannotWrite(err):
		s.noSpace(err)
	case errors.Is(err, kv.ErrReadOnly): // the log waits for space
	default:
		s.report(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j := &s.jobs[p.ID()]
	t := &j.flush
	if !flush {
		t = &j.compact
		t.wanted = t.wanted && (more || j.again)
		j.again = false
	}
	t.running = false
	if err == nil || stopped {
		t.pause = 0
	} else {
		t.wanted, t.resting = true, true
		t.pause = min(max(2*t.pause, firstPause), longPause)
		time.AfterFunc(t.pause, func() { s.rested(t) })
	}
	s.work.Broadcast()
}

// retry ends all pauses, because there is more space.
func (s *scheduler) retry() {
	s.mu.Lock()
	for i := range s.jobs {
		for _, t := range []*task{&s.jobs[i].flush, &s.jobs[i].compact} {
			t.pause, t.resting = 0, false
		}
	}
	s.mu.Unlock()
	s.work.Broadcast()
}

func (s *scheduler) rested(t *task) {
	defer s.events.Guard()
	s.mu.Lock()
	t.resting = false
	s.mu.Unlock()
	s.work.Broadcast()
}
