package workload

import "time"

// stallResolution is how often a run looks whether an operation has ended. Ten
// times shorter than the shortest stall that anybody would call one.
const stallResolution = 5 * time.Millisecond

// stallWatch finds the longest time in which no operation of any worker ended. A
// store may have quick operations on the whole and a good slowest second, and
// still make everybody wait at once.
//
// It looks at the moments in which operations ended, not at the operations, so
// that they pay one store to memory of their worker's own. A stall that lies
// between two looks may be understated by the time between them.
type stallWatch struct {
	longest time.Duration
	lastEnd int64 // of any operation, at the last look

	stop chan struct{}
	done chan struct{}
}

// watchStalls begins to watch the run; end must follow.
func (r *run) watchStalls() *stallWatch {
	s := &stallWatch{lastEnd: r.now(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(stallResolution)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.look(r.now(), r.lastEnd())
			case <-s.stop:
				s.look(r.now(), r.lastEnd())
				return
			}
		}
	}()
	return s
}

// look is told that at the moment now the last operation had ended at lastEnd.
func (s *stallWatch) look(now, lastEnd int64) {
	s.lastEnd = max(s.lastEnd, lastEnd)
	s.longest = max(s.longest, time.Duration(now-s.lastEnd))
}

// end waits for the last look. Then longest is final.
func (s *stallWatch) end() {
	close(s.stop)
	<-s.done
}

// lastEnd returns when the last operation of any worker ended.
func (r *run) lastEnd() int64 {
	var last int64
	for _, w := range r.workers {
		last = max(last, w.rec.lastEnd.Load())
	}
	return last
}
