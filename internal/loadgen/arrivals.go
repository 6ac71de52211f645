package loadgen

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Arrivals is an open loop without a fixed number of workers: requests arrive by the
// clock, however many are under way. It serves to overload a service: first a calm rate,
// then more than the service can do, then the calm rate again.
//
// A request that is due runs on a free caller, or on a new one, up to MaxCallers. If all
// callers wait, the request is *unsent*: its caller would have given up. A request is
// also unsent if the generator itself is too late for it, because it gets no processor
// time: otherwise it would send requests of an overload for seconds after its end.
// Unsent requests are counted, never hidden. The latency of all others counts from when
// they were due.
type Arrivals struct {
	CalmPerSecond    uint64
	OverPerSecond    uint64
	Calm, Over, Rest time.Duration // how long each of the three parts lasts

	MaxCallers int
	// Patience is how long a caller waits for an answer.
	Patience time.Duration
	// NewCaller returns what a caller does for each of its requests, one at a time.
	NewCaller func(index int) func(ctx context.Context) error
	// Judge says what became of a request that failed.
	Judge func(error) Fate
}

// Fate is what became of a request without an answer.
type Fate int

const (
	Failed  Fate = iota // no answer in time, or another error
	Refused             // rejected because of overload
	Fatal               // ends the run, for example a wrong answer
)

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

// Overload is the result of Arrivals.
type Overload struct {
	Calm Part `json:"calm"`
	Over Part `json:"over"`
	Rest Part `json:"rest"`
	// Recovery is the time from the end of the overload until requests are answered as
	// before it; the whole rest if they never are.
	Recovery time.Duration `json:"recovery"`
}

// ArrivalWindow is the time resolution of Overload.Recovery.
const ArrivalWindow = 100 * time.Millisecond

// maxLag is how late a request may be sent.
const maxLag = 20 * time.Millisecond

// normalWindows is the number of consecutive normal windows after which a service has
// recovered.
const normalWindows = 3

// Do sends the requests. A fatal error ends the run, as does the end of ctx, with its
// error.
func (a *Arrivals) Do(ctx context.Context) (*Overload, error) {
	if a.CalmPerSecond == 0 || a.OverPerSecond == 0 || a.MaxCallers < 1 {
		return nil, errors.New("arrivals need rates and callers")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &arrivalsRun{Arrivals: a, cancel: cancel, due: make(chan time.Duration), epoch: time.Now()}
	r.windows = make([]histogram.Histogram, (a.Calm+a.Over+a.Rest)/ArrivalWindow+1)
	r.troubles = make([]atomic.Uint64, len(r.windows))
	r.dispatch(ctx)
	close(r.due)
	r.callers.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &Overload{
		Calm: r.parts[0].sum(a.Calm), Over: r.parts[1].sum(a.Over), Rest: r.parts[2].sum(a.Rest),
		Recovery: r.recovery(),
	}, nil
}

type arrivalsRun struct {
	*Arrivals
	cancel   context.CancelCauseFunc
	due      chan time.Duration // of requests that found a caller
	callers  sync.WaitGroup
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
		return newKind(&s, took)
	}
	return Part{Seconds: took.Seconds(), Due: p.due.Load(), Unsent: p.unsent.Load(), Accepted: kind(&p.accepted),
		Late: p.late.Load(), Refused: kind(&p.refused), Failed: p.failed.Load()}
}

// dispatch sends every request when it is due.
func (r *arrivalsRun) dispatch(ctx context.Context) {
	callers := 0
	for next := 0.0; ctx.Err() == nil; { // in nanoseconds, of which the gaps are no whole number
		due := time.Duration(next)
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
			r.troubles[due/ArrivalWindow].Add(1)
		}
		next += 1e9 / float64(rate)
	}
}

// send passes a request to a free caller, or to a new one. It returns false if
// MaxCallers are busy, or if it is too late.
func (r *arrivalsRun) send(due time.Duration, callers *int) bool {
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
	do := r.NewCaller(*callers)
	*callers++
	r.callers.Go(func() { r.call(do, due) })
	return true
}

// at returns the part at a time and its rate; false after the last part.
func (r *arrivalsRun) at(due time.Duration) (p *part, rate uint64, ok bool) {
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

// call runs one caller, beginning with a given request. The requests have a context that
// never ends, which costs every client least.
func (r *arrivalsRun) call(do func(context.Context) error, due time.Duration) {
	for ok := true; ok; due, ok = <-r.due {
		err := do(context.Background())
		r.count(due, time.Since(r.epoch)-due, err)
	}
}

// count records the result of a request.
func (r *arrivalsRun) count(due, took time.Duration, err error) {
	p, _, _ := r.at(due)
	switch {
	case err == nil && took <= r.Patience:
		p.accepted.Record(took)
		r.windows[due/ArrivalWindow].Record(took)
		return
	case err == nil:
		p.late.Add(1)
	default:
		r.countFailed(p, took, err)
	}
	r.troubles[due/ArrivalWindow].Add(1)
}

func (r *arrivalsRun) countFailed(p *part, took time.Duration, err error) {
	switch r.Judge(err) {
	case Fatal:
		r.cancel(err)
	case Refused:
		p.refused.Record(took)
	default:
		p.failed.Add(1)
	}
}

// recovery looks for the first windows after the overload that are like those before it:
// every request was answered, with a p99 of at most twice the p99 of the worst calm
// window.
func (r *arrivalsRun) recovery() time.Duration {
	p99 := func(i int) time.Duration {
		var s histogram.Snapshot
		s.Add(&r.windows[i])
		return s.Quantile(0.99)
	}
	var normal time.Duration
	for i := range int(r.Calm / ArrivalWindow) {
		normal = max(normal, p99(i))
	}
	first, end := int((r.Calm+r.Over)/ArrivalWindow), int((r.Calm+r.Over+r.Rest)/ArrivalWindow)
	inARow := 0
	for i := first; i < end; i++ {
		if r.troubles[i].Load() > 0 || p99(i) > 2*normal {
			inARow = 0
			continue
		}
		if inARow++; inARow == normalWindows {
			return time.Duration(i+1-normalWindows-first) * ArrivalWindow
		}
	}
	return r.Rest
}
