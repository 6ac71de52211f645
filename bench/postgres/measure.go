package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// progress tells what is being done.
type progress func(format string, args ...any)

// cell is a store, and how its reads are batched.
type cell struct {
	store store
	batch string
}

// settings describes the reads of a cell in result.json.
type settings struct {
	Rows        uint64        `json:"rows"`
	Reads       uint64        `json:"reads"`
	InRow       uint64        `json:"inRow"` // how often each row is asked for, one time after the other
	Readers     int           `json:"readers"`
	Connections int           `json:"connections"` // to PostgreSQL
	Workers     int           `json:"workers"`     // that execute batches
	Linger      time.Duration `json:"lingerNanos"` // of batches
}

// newExperiment returns the experiment for stores, by their names, which hold the rows.
func newExperiment(o *options, held map[string]store) *experiment.Experiment {
	e := &experiment.Experiment{Name: "postgres", Title: title, Lead: lead, Sections: sections}
	var cells []cell
	for _, name := range stores {
		if held[name] == nil {
			continue
		}
		for _, batch := range held[name].batches(o.fixedSizes()) {
			cells = append(cells, cell{held[name], batch})
			e.Cells = append(e.Cells, experiment.Cell{Params: experiment.BatchParams(name, o.readers, batch)})
		}
	}
	e.Round = func(ctx context.Context, r *experiment.Round) error {
		for i := range cells {
			i = (i + r.Number) % len(cells) // no cell always follows the same one
			if err := measureCell(ctx, o, r, i, cells[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return e
}

func (o *options) fixedSizes() (names []string) {
	for _, n := range slices.Compact(slices.Sorted(slices.Values(o.sizes))) {
		names = append(names, strconv.Itoa(n))
	}
	return names
}

// measureCell adds a run to a cell.
func measureCell(ctx context.Context, o *options, r *experiment.Round, index int, c cell) error {
	var perBatch func() float64
	run, err := r.Measure(ctx, index, operations, func(observe func(loadgen.Sample)) (trial *loadgen.Trial, err error) {
		s, err := c.store.open(context.WithoutCancel(ctx), c.batch) // reads that began before a signal are answered
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		perBatch = s.readsPerBatch
		return o.load(uint64(r.Number)).run(ctx, s.newReader, observe)
	})
	if run == nil {
		return err
	}
	described := c.store.describe()
	run.DataBytes = &described.DiskBytes
	if perBatch != nil {
		run.Measures = map[string]float64{experiment.MeasureReadsPerBatch: perBatch()}
	}
	r.Cell(index).Workload, r.Cell(index).Target = o.settings(), described
	return err
}

// operations are what the readers do.
var operations = []string{"get"}

// load is readers that read random rows.
type load struct {
	rows, reads, inRow, seed uint64
	readers                  int
}

// tallies is how many tallies the readers share: one for each would exceed the processor's
// caches, and a single one would be contended.
const tallies = 8

// warmShare is the share of the reads that come before the measurement.
const warmShare = 10

// run makes all readers read, and measures that after a warm-up. The first wrong answer
// ends it.
func (l *load) run(ctx context.Context, newReader func() reader, observe func(loadgen.Sample)) (*loadgen.Trial, error) {
	cost, err := l.cost()
	if err != nil {
		return nil, err
	}
	clock, unused := loadgen.NewClock(), loadgen.NewTally(len(operations), 0)
	readers := make([]rowReader, l.readers)
	warm := &sequence{rows: l.rows, inRow: l.inRow, seed: ^l.seed}
	for i := range readers {
		readers[i].read, readers[i].sequence = newReader(), warm
	}
	err = loadgen.ForEach(ctx, l.readers, l.reads/warmShare, nil, func(_ context.Context, reader int, _ uint64) error {
		return readers[reader].step(clock, unused)
	})
	if err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	measured := &sequence{rows: l.rows, inRow: l.inRow, seed: l.seed}
	run := loadgen.Run{
		Clock: clock, Operations: operations, Cost: cost,
		Span:     loadgen.Span{Workers: l.readers, Operations: l.reads, Interval: time.Second},
		Observer: loadgen.Observer{Second: observe},
	}
	var shared [tallies]*loadgen.Tally
	for i := range shared {
		shared[i] = loadgen.NewTally(len(operations), 0)
	}
	for i := range readers {
		r, tally := &readers[i], shared[i%tallies]
		r.sequence = measured
		run.Workers = append(run.Workers, loadgen.Worker{Tally: tally, Step: func(context.Context, int64) error {
			return r.step(clock, tally)
		}})
	}
	return run.Do(ctx)
}

// costReads is the number of reads in a round that measures the generator's cost.
const costReads = 10_000

// cost returns the time of the generator for one read.
func (l *load) cost() (time.Duration, error) {
	payload := make([]byte, payloadBytes)
	putPayload(payload, 1)
	r := rowReader{
		read:     func(context.Context, []byte) ([]byte, error) { return payload, nil },
		sequence: &sequence{rows: 1, inRow: l.inRow, seed: l.seed},
	}
	clock, tally := loadgen.NewClock(), loadgen.NewTally(len(operations), 0)
	return loadgen.BestRound(costReads, func() error { return r.step(clock, tally) })
}

// rowReader reads one row after the other and checks the answers.
type rowReader struct {
	read     reader
	sequence *sequence
	key      [keyBytes]byte
	want     [payloadBytes]byte
}

// step reads a row and counts it. The read has no deadline, which costs every store least.
func (r *rowReader) step(clock loadgen.Clock, tally *loadgen.Tally) error {
	row := r.sequence.draw()
	putKey(r.key[:], row)
	began := clock.Now()
	payload, err := r.read(context.Background(), r.key[:])
	ended := clock.Now()
	if err == nil {
		err = checkPayload(payload, row, r.want[:])
	}
	if err != nil {
		return fmt.Errorf("row %d: %w", row, err)
	}
	tally.Record(0, began, ended, 0)
	return nil
}

// anyRun reports whether a result has a run.
func anyRun(r *results.Result) bool {
	return slices.ContainsFunc(r.Cells, func(c *results.Cell) bool { return len(c.Runs) > 0 })
}
