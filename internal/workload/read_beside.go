package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// ReadBeside measures how much a transactional writer slows down readers.
type ReadBeside struct {
	Transactions Transactions // of the writer
	WriteRate    uint64       // transactions a second; 0: a tenth of the rate of one writer alone
	Rounds       int
}

// Beside is the result of RunReadBeside: reads without and with a concurrent writer.
type Beside struct {
	Readers    int                `json:"readers"`
	PeakWrites float64            `json:"peakTransactionsPerSecond"` // of one writer alone; 0 if the rate was given
	WriteRate  uint64             `json:"writeRate"`                 // transactions a second that were due
	Written    []float64          `json:"transactionsPerSecond"`     // actual rate, by round
	Reads      loadgen.Comparison `json:"reads"`

	Trials []loadgen.NamedTrial `json:"-"` // in the order they ran, the writer alone first
}

func (b *Beside) add(name string, t *loadgen.Trial) {
	if t != nil {
		b.Trials = append(b.Trials, loadgen.NamedTrial{Name: name, Trial: t})
	}
}

// Warnings says in whole sentences why the ratio may mislead.
func (b *Beside) Warnings() []string {
	if done := loadgen.Median(b.Written); len(b.Written) > 0 && done < 0.95*float64(b.WriteRate) {
		return []string{fmt.Sprintf("The writer did %.0f transactions a second and should have done %d: the readers left it no more.", done, b.WriteRate)}
	}
	return nil
}

// RunReadBeside compares the rate of span.Workers readers of workload C without and
// with one writer whose transactions are due by the clock. Each trial takes
// span.Duration. For how it ends see RunCore: it returns what was measured until then,
// and interrupted rounds do not count.
func (b *Bench) RunReadBeside(ctx context.Context, o ReadBeside, span loadgen.Span, observer loadgen.Observer) (*Beside, error) {
	if span.Operations > 0 {
		return nil, errors.New("reading beside a writer needs a duration, not a number of operations")
	}
	result := &Beside{Readers: span.Workers, WriteRate: o.WriteRate}
	if o.WriteRate == 0 {
		alone := span
		alone.Workers = 1
		peak, err := b.RunTransactions(ctx, o.Transactions, alone, observer)
		result.add("writer alone", peak)
		if err != nil {
			return result, err
		}
		result.PeakWrites = peak.OpsPerSecond
		result.WriteRate = max(uint64(peak.OpsPerSecond/10), 1)
	}
	reads, err := loadgen.Compare(ctx, o.Rounds, func(ctx context.Context, with bool) (float64, error) {
		trial, err := b.readBeside(ctx, o.Transactions, result.WriteRate, with, span, observer)
		name := "readers alone"
		if with {
			name = "readers beside a writer"
		}
		result.add(name, trial)
		if err != nil {
			return 0, err
		}
		if with {
			result.Written = append(result.Written, trial.Operation(transactionOperations[transactionCommit]).OpsPerSecond)
		}
		return trial.Operation(transactionOperations[transactionRead]).OpsPerSecond, nil
	})
	if reads != nil {
		result.Reads = *reads
	}
	return result, err
}

func (b *Bench) readBeside(ctx context.Context, shape Transactions, writeRate uint64, beside bool, span loadgen.Span, observer loadgen.Observer) (*loadgen.Trial, error) {
	if err := b.checkTransactions(&shape, &span); err != nil {
		return nil, err
	}
	c, err := ParseCore("C")
	if err != nil {
		return nil, err
	}
	cost, err := b.coreCost(&c)
	if err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	t := b.newTrial(span, transactionOperations, observer)
	t.Cost = cost
	for i := range span.Workers {
		w := b.newCoreWorker(&c, &span, i, loadgen.NewTally(transactionKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.readOnly, Tally: w.tally})
	}
	if beside {
		w := b.newTransactionWorker(&shape, span.Workers, loadgen.NewTally(transactionKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.step, Tally: w.tally, Open: loadgen.NewTimetable(writeRate, 0, nil)})
	}
	result, err := t.Do(ctx)
	result.SetConflictRate(transactionOperations[transactionCommit])
	return result, err
}

// readOnly is a step of workload C, counted as a read beside transactions.
func (w *coreWorker) readOnly(ctx context.Context, intended int64) error {
	return w.read(ctx, transactionRead, w.chooser.next(w.acknowledged()), intended)
}
