package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Closed is a load of callers with one call at a time each.
type Closed struct {
	Callers    int    `json:"callers"`
	GetPercent int    `json:"getPercent"` // the rest are sets
	Keys       uint64 `json:"keys"`       // number of keys, chosen uniformly
	ValueBytes int    `json:"valueBytes"`
	Batch      int    `json:"batch,omitempty"` // keys of one get, if more than one; the target is a ManyGetter
	Sets       How    `json:"sets,omitempty"`  // how sets are made
	// OwnKeys is the number of keys of each caller, which no other one asks for; 0: all
	// callers choose of all keys.
	OwnKeys int    `json:"ownKeys,omitempty"`
	Seed    uint64 `json:"seed"`

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
	case c.OwnKeys < 0 || uint64(c.OwnKeys)*uint64(c.Callers) > c.Keys:
		return fmt.Errorf("%d keys for each of %d callers, of %d keys", c.OwnKeys, c.Callers, c.Keys)
	case c.Sets.conditional() && c.OwnKeys == 0:
		return errors.New("conditional sets without keys of their own")
	case c.Batch > 1 && c.OwnKeys > 0:
		return errors.New("batches of own keys")
	case c.Warmup < 0 || c.Duration <= 0:
		return fmt.Errorf("%v after a warm-up of %v", c.Duration, c.Warmup)
	}
	return c.Sets.validate()
}

// Outcome is the result of the measured part of a load.
type Outcome struct {
	Seconds float64      `json:"seconds"`
	Keys    uint64       `json:"keys"` // got or set; more than calls, if those are of several
	Gets    loadgen.Kind `json:"gets"` // calls
	Sets    loadgen.Kind `json:"sets"`
}

// OpsPerSecond counts keys.
func (o *Outcome) OpsPerSecond() float64 { return float64(o.Keys) / o.Seconds }

// The operations that the tallies of a load count.
const (
	getCall = iota
	setCall
)

var calls = []string{"get", "set"}

// tallies is how many tallies the callers share: one for each caller would exceed the
// processor's caches, and a single one would be contended.
const tallies = 8

// Run runs the callers, distributed over the targets. It calls measured when the
// measurement begins and when it ends. The first error of any caller ends the run; so
// does the end of ctx, with its error. The calls themselves have a context that never
// ends, which costs every client least.
func (c *Closed) Run(ctx context.Context, targets []Target, measured func(begins bool)) (*Outcome, error) {
	run := loadgen.Run{
		Clock: loadgen.NewClock(), Operations: calls,
		Span:     loadgen.Span{Workers: c.Callers, Warmup: c.Warmup, Duration: c.Duration},
		Observer: loadgen.Observer{Measured: measured},
	}
	var shared [tallies]*loadgen.Tally
	for i := range shared {
		shared[i] = loadgen.NewTally(len(calls), 0)
	}
	values := NewValues(c.ValueBytes)
	callers := make([]*caller, c.Callers)
	for i := range callers {
		callers[i] = c.newCaller(i, targets[i%len(targets)], values)
	}
	if c.Sets.conditional() {
		if err := learnAll(ctx, callers); err != nil {
			return nil, err
		}
	}
	for i, caller := range callers {
		tally := shared[i%tallies]
		run.Workers = append(run.Workers, loadgen.Worker{Tally: tally, Step: func(context.Context, int64) error {
			return c.call(caller, uint64(i), tally, run.Clock)
		}})
	}
	trial, err := run.Do(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	o := &Outcome{Seconds: trial.Seconds, Gets: trial.Operation("get").Kind, Sets: trial.Operation("set").Kind}
	o.Keys = o.Gets.Count*uint64(max(c.Batch, 1)) + o.Sets.Count
	return o, nil
}

func (c *Closed) newCaller(index int, t Target, values *Values) *caller {
	caller := newCaller(index, t, values, c.Seed, c.ValueBytes)
	if c.Batch > 1 {
		caller.prepareBatch(c.Batch)
	}
	caller.how, caller.own = c.Sets, make([]owned, c.OwnKeys)
	return caller
}

// choose returns the number of a key: one of the caller's own, if it has some.
func (c *Closed) choose(caller *caller, index uint64) uint64 {
	if c.OwnKeys == 0 {
		return caller.rng.Uint64N(c.Keys)
	}
	n := caller.rng.Uint64N(uint64(c.OwnKeys))
	caller.slot = &caller.own[n]
	return ownKey(index, c.OwnKeys, n)
}

// call makes one call of the caller with this index, and counts it.
func (c *Closed) call(caller *caller, index uint64, tally *loadgen.Tally, clock loadgen.Clock) error {
	id, get := c.choose(caller, index), c.GetPercent == 100 || int(caller.rng.Uint32N(100)) < c.GetPercent
	if c.Batch > 1 {
		caller.chooseBatch(c.Keys)
	} else {
		PutKey(caller.key[:], id)
	}
	began := clock.Now()
	err := caller.do(context.Background(), id, get)
	ended := clock.Now()
	if err != nil {
		return err
	}
	operation := setCall
	if get {
		operation = getCall
	}
	tally.Record(operation, began, ended, 0)
	return nil
}
