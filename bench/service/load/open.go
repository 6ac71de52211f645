package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Open is a load whose requests begin by the clock: first at a calm rate, then at a
// multiple of what the service can do, then at the calm rate again.
//
// A request that is due runs on a free caller, or on a new one, up to MaxCallers. If
// all callers wait, the request is *unsent*: its caller would have given up. A request
// is also unsent if the generator itself is too late for it, because it gets no
// processor time: otherwise it would send requests of an overload for seconds after its
// end. Unsent requests are counted, never hidden. The latency of all others counts from
// when they were due.
type Open struct {
	CalmPerSecond    uint64        `json:"calmPerSecond"`
	OverPerSecond    uint64        `json:"overPerSecond"`
	Calm, Over, Rest time.Duration // how long each of the three parts lasts

	MaxCallers int    `json:"maxCallers"`
	GetPercent int    `json:"getPercent"`
	Keys       uint64 `json:"keys"`
	ValueBytes int    `json:"valueBytes"`
	Seed       uint64 `json:"seed"`

	// Patience is how long a caller waits for an answer.
	Patience time.Duration `json:"patience"`
}

// Part is the result of the requests that were due in one part.
type Part struct {
	Seconds  float64 `json:"seconds"`
	Due      uint64  `json:"due"`
	Unsent   uint64  `json:"unsent"`
	Accepted Kind    `json:"accepted"` // answered in time
	Late     uint64  `json:"late"`     // answered after Patience
	Refused  Kind    `json:"refused"`  // rejected because of overload
	Failed   uint64  `json:"failed"`   // all others: no answer in time
}

// GoodPerSecond is the rate of answers in time.
func (p *Part) GoodPerSecond() float64 { return float64(p.Accepted.Count) / p.Seconds }

// OpenOutcome is the result of an Open.
type OpenOutcome struct {
	Calm Part `json:"calm"`
	Over Part `json:"over"`
	Rest Part `json:"rest"`
	// Recovery is the time from the end of the overload until requests are answered as
	// before it; the whole rest if they never are.
	Recovery time.Duration `json:"recovery"`
}

// window is the time resolution of Recovery.
const window = 100 * time.Millisecond

// maxLag is how late a request may be sent.
const maxLag = 20 * time.Millisecond

// normalWindows is the number of consecutive normal windows after which a service has
// recovered.
const normalWindows = 3

// Run sends the requests. refused recognizes the error of an overloaded service. A
// wrong answer ends the run.
func (o *Open) Run(ctx context.Context, targets []Target, refused func(error) bool) (*OpenOutcome, error) {
	if o.CalmPerSecond == 0 || o.OverPerSecond == 0 || o.MaxCallers < 1 {
		return nil, errors.New("an open load wants rates and callers")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &openRun{Open: o, values: NewValues(o.ValueBytes), refused: refused, cancel: cancel,
		due: make(chan time.Duration), targets: targets, epoch: time.Now()}
	r.windows = make([]histogram.Histogram, (o.Calm+o.Over+o.Rest)/window+1)
	r.troubles = make([]atomic.Uint64, len(r.windows))
	r.dispatch(ctx)
	close(r.due)
	r.callers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &OpenOutcome{
		Calm: r.parts[0].sum(o.Calm), Over: r.parts[1].sum(o.Over), Rest: r.parts[2].sum(o.Rest),
		Recovery: r.recovery(),
	}, nil
}

type openRun struct {
	*Open
	values   *Values
	refused  func(error) bool
	cancel   context.CancelCauseFunc
	due      chan time.Duration // of requests that found a caller
	callers  sync.WaitGroup
	targets  []Target
	epoch    time.Time
	parts    [3]part
	windows  []histogram.Histogram // of answers, by when they were due
	troubles []atomic.Uint64       // of requests without one, likewise
}

type part struct {
	due, unsent, late, failed atomic.Uint64
	accepted, refused         histogram.Histogram
}

func (p *part) sum(took time.Duration) Part {
	kind := func(h *histogram.Histogram) Kind {
		var s histogram.Snapshot
		s.Add(h)
		return newKind(&s)
	}
	return Part{Seconds: took.Seconds(), Due: p.due.Load(), Unsent: p.unsent.Load(), Accepted: kind(&p.accepted),
		Late: p.late.Load(), Refused: kind(&p.refused), Failed: p.failed.Load()}
}

// dispatch sends every request when it is due.
func (r *openRun) dispatch(ctx context.Context) {
	callers := 0
	for due := time.Duration(0); ctx.Err() == nil; {
		p, rate, ok := r.at(due)
		if !ok {
			return
		}
		if ahead := due - time.Since(r.epoch); ahead > 0 {
			time.Sleep(ahead)
		}
		p.due.Add(1)
		if !r.send(due, &callers) {
			p.unsent.Add(1)
			r.troubles[due/window].Add(1)
		}
		due += time.Second / time.Duration(rate)
	}
}

// send passes a request to a free caller, or to a new one. It returns false if
// MaxCallers are busy, or if it is too late.
func (r *openRun) send(due time.Duration, callers *int) bool {
	if time.Since(r.epoch)-due > maxLag {
		return false
	}
	select {
	case r.due <- due:
		return true
	default:
	}
	if *callers == r.MaxCallers {
		return false
	}
	index := *callers
	*callers++
	r.callers.Go(func() { r.call(index, due) })
	return true
}

// at returns the part at a time and its rate; false after the last part.
func (r *openRun) at(due time.Duration) (p *part, rate uint64, ok bool) {
	switch {
	case due < r.Calm:
		return &r.parts[0], r.CalmPerSecond, true
	case due < r.Calm+r.Over:
		return &r.parts[1], r.OverPerSecond, true
	case due < r.Calm+r.Over+r.Rest:
		return &r.parts[2], r.CalmPerSecond, true
	}
	return nil, 0, false
}

// call runs one caller, beginning with a given request.
func (r *openRun) call(index int, due time.Duration) {
	c := &caller{
		target: r.targets[index%len(r.targets)],
		values: r.values,
		rng:    rand.New(rand.NewPCG(r.Seed, uint64(index))),
		puts:   uint64(index+1) << 40,
		value:  make([]byte, r.ValueBytes),
	}
	for ok := true; ok; due, ok = <-r.due {
		id := c.rng.Uint64N(r.Keys)
		PutKey(c.key[:], id)
		err := c.do(context.Background(), id, int(c.rng.Uint32N(100)) < r.GetPercent)
		r.count(due, time.Since(r.epoch)-due, err)
	}
}

// count records the result of a request.
func (r *openRun) count(due, took time.Duration, err error) {
	p, _, _ := r.at(due)
	switch {
	case errors.Is(err, ErrWrongAnswer):
		r.cancel(fmt.Errorf("under overload: %w", err))
	case err == nil && took <= r.Patience:
		p.accepted.Record(took)
		r.windows[due/window].Record(took)
		return
	case err == nil:
		p.late.Add(1)
	case r.refused(err):
		p.refused.Record(took)
	default:
		p.failed.Add(1)
	}
	r.troubles[due/window].Add(1)
}

// recovery looks for the first windows after the overload that are like those before
// it: every request was answered, with a p99 of at most twice the p99 of the worst calm
// window.
func (r *openRun) recovery() time.Duration {
	p99 := func(i int) time.Duration {
		var s histogram.Snapshot
		s.Add(&r.windows[i])
		return s.Quantile(0.99)
	}
	var normal time.Duration
	for i := range int(r.Calm / window) {
		normal = max(normal, p99(i))
	}
	first, end := int((r.Calm+r.Over)/window), int((r.Calm+r.Over+r.Rest)/window)
	inARow := 0
	for i := first; i < end; i++ {
		if r.troubles[i].Load() > 0 || p99(i) > 2*normal {
			inARow = 0
			continue
		}
		if inARow++; inARow == normalWindows {
			return time.Duration(i+1-normalWindows-first) * window
		}
	}
	return r.Rest
}
