package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// trial is a run of transactions on the records of a setup.
type trial struct {
	Shape workload.Transactions `json:"shape"`
	Span  loadgen.Span          `json:"span"`
}

func (t *trial) validate(r *workload.Records) error {
	if r == nil {
		return errors.New("transactions without records")
	}
	return errors.Join(t.Span.Validate(), r.Validate(), t.Shape.Validate(r.Count))
}

// run runs the trial and returns its result in the form of a run, transactions as puts.
func (t *trial) run(ctx context.Context, b *workload.Bench, lossy bool, o loadgen.Observer) (*workload.Summary, error) {
	shape := t.Shape
	shape.Lossy = lossy
	ran, err := b.RunTransactions(ctx, shape, t.Span, o)
	if err != nil {
		return nil, err
	}
	s := summaryOf(ran)
	s.Put = ran.Operation("transaction").Kind
	return s, nil
}

// summaryOf returns the result of a trial in the form of a run, without its operations.
func summaryOf(t *loadgen.Trial) *workload.Summary {
	return &workload.Summary{
		Seconds: t.Seconds, Ops: t.Ops, OpsPerSecond: t.OpsPerSecond, SlowestSecond: t.SlowestSecond,
		LongestStallNanos: t.LongestStallNanos, Generator: t.Generator, CPUMicrosPerOp: t.CPUMicrosPerOp,
		PeakRSSBytes: t.PeakRSSBytes, Interrupted: t.Interrupted,
	}
}

// recordLoaders is how many workers put the records of a setup: so many that those of a
// store that syncs each put share the syncs.
const recordLoaders = 256

// loadRecords puts the records of a setup, and lets the store settle.
func loadRecords(ctx context.Context, store peers.Store, r workload.Records, out *json.Encoder) (*workload.Bench, *loaded, error) {
	b, err := workload.NewBench(store, r)
	if err != nil {
		return nil, nil, err
	}
	ready, err := timeLoad(store.Settle, func() error {
		done := 0
		_, err := b.Load(ctx, min(recordLoaders, int(r.Count)), time.Second, loadgen.Observer{Interval: func(s loadgen.Sample) error {
			done += int(s.Counts.Ops())
			return out.Encode(message{Loaded: done})
		}})
		return err
	})
	return b, ready, err
}
