package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// The operations of a trial of transactions.
const (
	transactionCommit = iota
	transactionRead   // a single read beside the transactions
	transactionKinds
)

var transactionOperations = []string{"transaction", "read"}

// TransactionOperations returns the names of the operations that trials of transactions count.
func TransactionOperations() []string { return slices.Clone(transactionOperations) }

// Transactions is the shape of the transactions of a trial. Each reads a number of
// different records and writes some of them back with one more change. It writes no
// record that it has not read: such a write could not conflict, and would lose nothing.
type Transactions struct {
	Reads       int     `json:"reads"`
	Writes      int     `json:"writes"`      // at most Reads
	HotFraction float64 `json:"hotFraction"` // share of the records that are hot
	HotRate     float64 `json:"hotRate"`     // share of the reads that go to them
	// Lossy says that the target may lose one of two concurrent updates of a record. All
	// that is read is checked but for the number of its changes.
	Lossy bool `json:"lossy,omitempty"`
}

// mostTransactionReads bounds a worker's memory and the search for different records.
// Guessed.
const mostTransactionReads = 1000

// Validate returns an error for every setting that is invalid for this number of
// records.
func (s *Transactions) Validate(records uint64) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(s.Reads >= 1 && s.Reads <= mostTransactionReads, "%d reads a transaction; want 1 to %d", s.Reads, mostTransactionReads)
	check(s.Writes >= 0 && s.Writes <= s.Reads, "%d writes a transaction; want 0 to %d, the reads: what is written was read", s.Writes, s.Reads)
	check(s.HotFraction >= 0 && s.HotFraction <= 1, "hot fraction %v; want 0 to 1", s.HotFraction)
	check(s.HotRate >= 0 && s.HotRate <= 1, "hot rate %v; want 0 to 1", s.HotRate)
	check(s.Reads < 1 || uint64(s.Reads) <= s.reachable(records), "%d reads a transaction from %d records; want as many different ones", s.Reads, s.reachable(records))
	return errors.Join(errs...)
}

// reachable returns how many records can be read.
func (s *Transactions) reachable(records uint64) uint64 {
	if h, ok := s.chooser(records, nil).(*hotspot); ok && h.rate >= 1 {
		return h.hot
	}
	return records
}

// chooser returns the chooser of a worker: uniform if no records are hot.
func (s *Transactions) chooser(records uint64, rng *rand.Rand) chooser {
	if s.HotFraction <= 0 || s.HotRate <= 0 {
		return &uniform{rng: rng, keys: records}
	}
	return newHotspot(rng, records, s.HotFraction, s.HotRate)
}

// RunTransactions runs transactions on the loaded records. For how it ends see RunCore.
func (b *Bench) RunTransactions(ctx context.Context, shape Transactions, span loadgen.Span, observer loadgen.Observer) (*loadgen.Trial, error) {
	if err := b.checkTransactions(&shape, &span); err != nil {
		return nil, err
	}
	cost, err := b.transactionCost(&shape)
	if err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	t := b.newTrial(span, transactionOperations, observer)
	t.Cost = cost
	for i := range span.Workers {
		w := b.newTransactionWorker(&shape, i, loadgen.NewTally(transactionKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.step, Tally: w.tally})
	}
	result, err := t.Do(ctx)
	result.SetConflictRate(transactionOperations[transactionCommit])
	return result, err
}

func (b *Bench) checkTransactions(shape *Transactions, span *loadgen.Span) error {
	if err := errors.Join(span.Validate(), shape.Validate(b.acknowledged())); err != nil {
		return err
	}
	if _, ok := b.target.(Transactor); !ok {
		return errors.New("the target has no transactions")
	}
	return nil
}
