package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Overload is a load whose requests begin by the clock: first at a calm rate, then at a
// multiple of what the service can do, then at the calm rate again. See
// [loadgen.Arrivals].
type Overload struct {
	CalmPerSecond    uint64
	OverPerSecond    uint64
	Calm, Over, Rest time.Duration // how long each of the three parts lasts

	MaxCallers int
	GetPercent int
	Keys       uint64
	ValueBytes int
	Seed       uint64

	// Patience is how long a caller waits for an answer.
	Patience time.Duration
}

// Run sends the requests. refused recognizes the error of an overloaded service. A wrong
// answer ends the run.
func (o *Overload) Run(ctx context.Context, targets []Target, refused func(error) bool) (*loadgen.Overload, error) {
	values := NewValues(o.ValueBytes)
	arrivals := loadgen.Arrivals{
		CalmPerSecond: o.CalmPerSecond, OverPerSecond: o.OverPerSecond, Calm: o.Calm, Over: o.Over, Rest: o.Rest,
		MaxCallers: o.MaxCallers, Patience: o.Patience,
		NewCaller: func(index int) func(context.Context) error {
			c := newCaller(index, targets[index%len(targets)], values, o.Seed, o.ValueBytes)
			return func(ctx context.Context) error {
				id := c.rng.Uint64N(o.Keys)
				PutKey(c.key[:], id)
				return c.do(ctx, id, int(c.rng.Uint32N(100)) < o.GetPercent)
			}
		},
		Judge: func(err error) loadgen.Fate {
			switch {
			case errors.Is(err, ErrWrongAnswer):
				return loadgen.Fatal
			case refused(err):
				return loadgen.Refused
			}
			return loadgen.Failed
		},
	}
	result, err := arrivals.Do(ctx)
	if err != nil {
		return nil, fmt.Errorf("overload: %w", err)
	}
	return result, nil
}
