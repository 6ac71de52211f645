package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Closed is a load of callers with one call at a time each.
type Closed struct {
	Callers    int    `json:"callers"`
	GetPercent int    `json:"getPercent"` // the rest are sets
	Keys       uint64 `json:"keys"`       // number of keys, chosen uniformly
	ValueBytes int    `json:"valueBytes"`
	Batch      int    `json:"batch,omitempty"` // keys of one get, if more than one; the target is a ManyGetter
	Seed       uint64 `json:"seed"`

	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
}

// Validate returns an error for settings that Run cannot work with.
func (c *Closed) Validate() error {
	switch {
	case c.Callers < 1:
		return fmt.Errorf("%d callers, want at least 1", c.Callers)
	case c.GetPercent < 0 || c.GetPercent > 100:
		return fmt.Errorf("%d %% gets", c.GetPercent)
	case c.Keys < 1:
		return errors.New("no keys")
	case c.ValueBytes < MinValueBytes:
		return fmt.Errorf("values of %d bytes, want at least %d", c.ValueBytes, MinValueBytes)
	case c.Batch < 0 || uint64(c.Batch) > c.Keys:
		return fmt.Errorf("batches of %d of %d keys", c.Batch, c.Keys)
	case c.Batch > 1 && c.GetPercent < 100:
		return errors.New("batches are of gets")
	case c.Warmup < 0 || c.Duration <= 0:
		return fmt.Errorf("%v after a warm-up of %v", c.Duration, c.Warmup)
	}
	return nil
}

// Outcome is the result of the measured part of a load.
type Outcome struct {
	Seconds float64 `json:"seconds"`
	Keys    uint64  `json:"keys"` // got or set; more than calls, if those are of several
	Gets    Kind    `json:"gets"` // calls
	Sets    Kind    `json:"sets"`
}

// OpsPerSecond counts keys.
func (o *Outcome) OpsPerSecond() float64 { return float64(o.Keys) / o.Seconds }

type phase = int32

const (
	warming phase = iota
	measuring
	over
)

// Run runs the callers, distributed over the targets. It calls measured when the
// measurement begins and when it ends. The first error of any caller ends the run; so
// does the end of ctx, with its error. The calls themselves have a context that never
// ends, which costs every client least.
func (c *Closed) Run(ctx context.Context, targets []Target, measured func(begins bool)) (*Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &closedRun{Closed: c, values: NewValues(c.ValueBytes), epoch: time.Now()}
	var callers sync.WaitGroup
	for i := range c.Callers {
		callers.Go(func() {
			if err := r.call(i, targets[i%len(targets)]); err != nil {
				r.phase.Store(over)
				cancel(err)
			}
		})
	}
	wait(ctx, c.Warmup)
	measured(true)
	begin := time.Now()
	r.phase.CompareAndSwap(warming, measuring)
	wait(ctx, c.Duration)
	r.phase.Store(over)
	elapsed := time.Since(begin)
	measured(false)
	callers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	o := &Outcome{Seconds: elapsed.Seconds(), Gets: r.recording.sum(gets), Sets: r.recording.sum(sets)}
	o.Keys = o.Gets.Count*uint64(max(c.Batch, 1)) + o.Sets.Count
	return o, nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type closedRun struct {
	*Closed
	values    *Values
	epoch     time.Time
	phase     atomic.Int32
	recording recording
}

// call runs one caller. Calls that end during the measurement count.
func (r *closedRun) call(index int, t Target) error {
	ctx := context.Background()
	c := &caller{
		target: t,
		values: r.values,
		rng:    rand.New(rand.NewPCG(r.Seed, uint64(index))),
		puts:   uint64(index+1) << 40,
		value:  make([]byte, r.ValueBytes),
	}
	if r.Batch > 1 {
		c.prepareBatch(r.Batch)
	}
	recorder := r.recording.of(index)
	for r.phase.Load() != over {
		id, get := c.rng.Uint64N(r.Keys), r.GetPercent == 100 || int(c.rng.Uint32N(100)) < r.GetPercent
		if r.Batch > 1 {
			c.chooseBatch(r.Keys)
		} else {
			PutKey(c.key[:], id)
		}
		began := time.Since(r.epoch)
		err := c.do(ctx, id, get)
		took := time.Since(r.epoch) - began
		if err != nil {
			return err
		}
		if r.phase.Load() != measuring {
			continue
		}
		if get {
			recorder.gets.Record(took)
		} else {
			recorder.sets.Record(took)
		}
	}
	return nil
}
