package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// scanMix is a run of puts, gets and short scans of a data set, all of whose keys are
// there. It checks what scans check, which costs little: that of package workload would
// take half of the time.
type scanMix struct {
	Span loadgen.Span `json:"span"`
	Seed uint64       `json:"seed"`
}

// The operations of the mix, and their shares in percent; the rest are scans.
const (
	mixPut = iota
	mixGet
	mixScan

	putPercent = 50
	getPercent = 40
)

var scanMixOperations = []string{"put", "get", "scan"}

// mixTarget is what the mix needs of a store.
type mixTarget interface {
	peers.Forwarder
	Put(ctx context.Context, key, value []byte) error
	Get(ctx context.Context, key, buf []byte) (value []byte, found bool, err error)
}

// run runs the mix and returns its result.
func (m *scanMix) run(ctx context.Context, s mixTarget, d dataset, o loadgen.Observer) (*workload.Summary, error) {
	cost, err := m.cost(d)
	if err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	run := loadgen.Run{Clock: loadgen.NewClock(), Span: m.Span, Operations: scanMixOperations, Observer: o, Cost: cost}
	for i := range m.Span.Workers {
		w := newMixWorker(s, d, run.Clock, m.Seed, i)
		run.Workers = append(run.Workers, loadgen.Worker{Step: w.step, Tally: w.tally})
	}
	ran, err := run.Do(ctx)
	if err != nil {
		return nil, err
	}
	summary := summaryOf(ran)
	summary.Put, summary.Get = ran.Operation("put").Kind, ran.Operation("get").Kind
	return summary, nil
}

// costKeys is so small that the entries stay in the processor's cache.
const costKeys = 1000

// cost measures the generator against a shelf of few entries.
func (m *scanMix) cost(d dataset) (time.Duration, error) {
	d.Keys, d.Order = min(d.Keys, costKeys), orderSorted
	var few entries
	if err := d.load(few.load); err != nil {
		return 0, err
	}
	w := newMixWorker(&few, d, loadgen.NewClock(), 1, 0)
	return loadgen.BestRound(loadgen.CostRound(d.ValueBytes), func() error { return w.step(context.Background(), 0) })
}

// mixWorker does one operation after the other.
type mixWorker struct {
	loadgen.Clock
	target mixTarget
	data   dataset
	rng    *rand.Rand
	tally  *loadgen.Tally
	pool   []byte // of random bytes

	key   [keyBytes]byte
	value []byte
	buf   []byte
}

// poolBytes is the number of places at which a value begins in the pool.
const poolBytes = 1 << 16

func newMixWorker(s mixTarget, d dataset, clock loadgen.Clock, seed uint64, index int) *mixWorker {
	w := &mixWorker{
		Clock: clock, target: s, data: d, tally: loadgen.NewTally(len(scanMixOperations), 0),
		rng: rand.New(rand.NewPCG(seed, uint64(index))), pool: make([]byte, poolBytes+d.ValueBytes), value: make([]byte, d.ValueBytes),
	}
	for i := range w.pool {
		w.pool[i] = byte(w.rng.Uint64())
	}
	return w
}

func (w *mixWorker) step(ctx context.Context, _ int64) error {
	number := w.rng.IntN(w.data.Keys)
	putKey(w.key[:], number)
	switch n := w.rng.IntN(100); {
	case n < putPercent:
		return w.put(ctx, number)
	case n < putPercent+getPercent:
		return w.get(ctx, number)
	}
	began := w.Now()
	err := w.data.page(ctx, w.target, number)
	w.tally.Record(mixScan, began, w.Now(), 0)
	return err
}

func (w *mixWorker) put(ctx context.Context, number int) error {
	copy(w.value, w.pool[w.rng.IntN(poolBytes):])
	w.data.mark(w.value, number)
	began := w.Now()
	err := w.target.Put(ctx, w.key[:], w.value)
	w.tally.Record(mixPut, began, w.Now(), 0)
	return err
}

func (w *mixWorker) get(ctx context.Context, number int) error {
	began := w.Now()
	value, found, err := w.target.Get(ctx, w.key[:], w.buf)
	w.tally.Record(mixGet, began, w.Now(), 0)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("wrong answer: key %q is absent", w.key[:])
	}
	w.buf = value
	return w.data.check(w.key[:], value, number)
}

// entries are the entries of a data set that was loaded in order, as a target.
type entries []peers.Entry

func (e *entries) load(some []peers.Entry) error {
	for _, entry := range some {
		*e = append(*e, peers.Entry{Key: append([]byte(nil), entry.Key...), Value: append([]byte(nil), entry.Value...)})
	}
	return nil
}

func (e *entries) at(key []byte) int {
	number := 0
	for _, digit := range key[len(key)-4:] {
		number = 10*number + int(digit-'0')
	}
	return number
}

func (e *entries) Put(context.Context, []byte, []byte) error { return nil }

func (e *entries) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	return (*e)[e.at(key)].Value, true, nil
}

func (e *entries) Forward(from []byte, visit peers.Visit) error {
	for _, entry := range (*e)[e.at(from):] {
		if !visit(entry.Key, entry.Value) {
			break
		}
	}
	return nil
}

// scanMixThreads is how many threads run the mix.
const scanMixThreads = 4

const scanMixCell = "50 % put, 40 % get, 10 % scan of 50, 4 threads"

func (m *scanMix) validate(d dataset) error {
	if d.Point {
		return errors.New("the mix has values of its own")
	}
	return m.Span.Validate()
}

// scanMixContest has short scans beside puts and gets, on a store that was loaded and has
// settled.
func scanMixContest(o *contestOptions) *contest {
	c := o.contest(scanMixCell)
	c.setup = newSetup(o.memory, false)
	c.setup.Data = dataset{Keys: o.keys, ValueBytes: readValueBytes, Order: orderSorted}
	c.cells = []cell{{name: scanMixCell, mix: &scanMix{
		Span: loadgen.Span{Workers: scanMixThreads, Warmup: o.slot / 4, Duration: o.slot, Interval: time.Second},
	}}}
	return c
}

func newScanMixCommand() *cobra.Command {
	var o contestOptions
	c := &cobra.Command{
		Use:   "scanmix",
		Short: "Compare a mix of puts, gets and short scans",
		Args:  cobra.NoArgs,
	}
	o.register(c.Flags(), scanMixEngines, readKeys, 20*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error { return runContests(c, &o, scanMixContest(&o)) }
	return c
}

var scanMixEngines = []string{ours, ours4, ours16, "pebble", "pebble-4k"}
