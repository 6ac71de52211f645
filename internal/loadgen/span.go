package loadgen

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of a run. MaxOperations and MaxDuration are far beyond any measurement, and keep sums
// and times within their types.
const (
	MaxWorkers    = 1<<16 - 1
	MaxOperations = 1_000_000_000_000_000
	MaxDuration   = 366 * 24 * time.Hour
)

// Span gives the number of workers of a run and when it ends.
type Span struct {
	Workers    int           // goroutines, each with one operation at a time
	Operations uint64        // of all workers together; 0: as many as fit in Duration
	Warmup     time.Duration // not measured; needs a Duration
	Duration   time.Duration // measured; 0: until the Operations are done
	Interval   time.Duration // between two lines of the report, whole seconds
}

// Validate returns an error for every invalid setting.
func (s *Span) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.Workers >= 1 && s.Workers <= MaxWorkers, "%d threads; want 1 to %d", s.Workers, MaxWorkers)
	check(s.Duration >= 0 && s.Duration <= MaxDuration, "duration of %v; want 0 to %v", s.Duration, MaxDuration)
	check(s.Operations <= MaxOperations, "%d operations; want at most %d", s.Operations, uint64(MaxOperations))
	check((s.Operations > 0) != (s.Duration > 0), "%d operations and a duration of %v; want one of the two", s.Operations, s.Duration)
	check(s.Warmup >= 0 && s.Warmup <= MaxDuration, "warm-up of %v; want 0 to %v", s.Warmup, MaxDuration)
	check(s.Warmup == 0 || s.Operations == 0, "a warm-up before %d operations; it needs a duration", s.Operations)
	check(s.Interval >= time.Second && s.Interval%time.Second == 0 && s.Interval <= MaxDuration, "interval of %v; want whole seconds, at most %v", s.Interval, MaxDuration)
	return errors.Join(errs...)
}

// share returns the number of operations of one worker, 0 for no limit, and whether it
// has any.
func (s *Span) share(worker int) (operations uint64, any bool) {
	if s.Operations == 0 {
		return 0, true
	}
	n, workers := uint64(worker), uint64(s.Workers)
	operations = s.Operations / workers
	if n < s.Operations%workers {
		operations++
	}
	return operations, operations > 0
}
