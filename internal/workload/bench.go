package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Records describes the records of a Bench. Zero means zero, but where a field says
// otherwise.
type Records struct {
	Count      uint64 // inserted by Load
	ValueBytes int    // length of every value, at least MinRecordBytes
	Seed       uint64
	// Theta is the skew of the core workloads; zero means DefaultTheta.
	Theta float64
	// Compressible is the share of a value's bytes that repeats others of the value.
	Compressible float64
}

// Validate returns an error for every invalid setting.
func (r *Records) Validate() error {
	var errs []error
	if r.Count < 1 || r.Count > mostRecords {
		errs = append(errs, fmt.Errorf("%d records; want 1 to %d", r.Count, uint64(mostRecords)))
	}
	if r.ValueBytes < MinRecordBytes {
		errs = append(errs, fmt.Errorf("records of %d bytes; want at least %d, which make a record verifiable", r.ValueBytes, MinRecordBytes))
	}
	errs = append(errs, checkTheta(r.Theta), checkCompressible(r.Compressible))
	return errors.Join(errs...)
}

// mostRecords keeps the ledger, four bytes a record, within 4 GiB.
const mostRecords = 1 << 30

// Bench is a target with verifiable records, on which one trial follows another:
// [Bench.RunCore], [Bench.RunTransactions], [Bench.RunReadBeside] and
// [Bench.RunSnapshots]. Load must come first, once. At the end, Audit reads all
// records.
//
// A Bench remembers what the trials did, so nothing else may write to the records, and
// it must not be used after an error. Only one trial may run at a time.
type Bench struct {
	*records
	trials uint64
	costs  map[any]time.Duration // see cost
}

// records is shared by all workers of a bench.
type records struct {
	loadgen.Clock
	Records
	target     Target
	pool       *valuePool
	insertions *insertions
	ledger     ledger
}

// NewBench prepares the generator. It does not touch the target, and the caller remains
// responsible for closing it.
func NewBench(target Target, r Records) (*Bench, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return newBench(target, r, prepared.poolFor(r.ValueBytes, r.Compressible, r.Seed)), nil
}

// newBench is NewBench for valid records, and with a pool that other benches may share.
func newBench(target Target, r Records, pool *valuePool) *Bench {
	return &Bench{costs: make(map[any]time.Duration), records: &records{
		Clock:      loadgen.NewClock(),
		Records:    r,
		target:     target,
		pool:       pool,
		insertions: newInsertions(0),
	}}
}

// Load inserts all records, in the order of their numbers, and measures that. It fails
// if ctx ends.
func (b *Bench) Load(ctx context.Context, workers int, interval time.Duration, observer loadgen.Observer) (*loadgen.Trial, error) {
	span := loadgen.Span{Workers: workers, Operations: b.Count, Interval: interval}
	if err := span.Validate(); err != nil {
		return nil, err
	}
	t := b.newTrial(span, coreOperations, observer)
	for i := range workers {
		w := b.newWorker(i, loadgen.NewTally(coreKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.load, Tally: w.tally})
	}
	result, err := t.Do(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return result, fmt.Errorf("load: %w", err)
	}
	return result, nil
}

// newTrial prepares the next trial of the bench.
func (b *Bench) newTrial(span loadgen.Span, operations []string, observer loadgen.Observer) *loadgen.Run {
	b.trials++
	b.ledger.grow(b.acknowledged())
	return &loadgen.Run{
		Clock: b.Clock, Span: span, Operations: operations, Observer: observer, DiskBytes: diskBytes(b.target), Server: serverTime(b.target),
	}
}

func (r *records) acknowledged() uint64 { return r.insertions.acknowledged.Load() }
