package loadgen

import "time"

// stallResolution is how often a run checks whether an operation has ended. It is a
// tenth of the shortest pause that counts as a stall.
const stallResolution = 5 * time.Millisecond

// stallWatch finds the longest time in which no operation of any worker ended. A store
// may have fast operations on average and a good slowest second, and still stall all
// callers at once.
//
// It samples the times at which operations ended, not the operations, so an operation
// costs only one store to memory of its worker. The sampling may understate a stall by
// up to its interval.
type stallWatch struct {
	longest time.Duration
	lastEnd int64 // of any operation, at the last sample

	stop chan struct{}
	done chan struct{}
}

// watchStalls begins to watch the run. The caller must call end.
func (r *Run) watchStalls() *stallWatch {
	s := &stallWatch{lastEnd: r.Clock.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(stallResolution)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.look(r.Clock.Now(), r.lastEnd())
			case <-s.stop:
				s.look(r.Clock.Now(), r.lastEnd())
				return
			}
		}
	}()
	return s
}

// look records that at time now the last operation had ended at lastEnd.
func (s *stallWatch) look(now, lastEnd int64) {
	s.lastEnd = max(s.lastEnd, lastEnd)
	s.longest = max(s.longest, time.Duration(now-s.lastEnd))
}

// end takes the last sample. Then longest is final.
func (s *stallWatch) end() {
	close(s.stop)
	<-s.done
}
