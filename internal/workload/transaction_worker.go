package workload

import (
	"context"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// transactionWorker commits transactions.
type transactionWorker struct {
	*recordWorker
	transactor Transactor
	writes     int
	chooser    chooser
	body       func(context.Context, Transaction) error // run, allocated once

	// The current transaction: the same in each attempt.
	reads   []transactionRecord
	version version
	random  uint64
}

// transactionRecord is one record that a transaction reads.
type transactionRecord struct {
	id    uint64
	floor uint64 // changes that had been acknowledged before the transaction
	key   [RecordKeyBytes]byte
	value []byte // the value to write; nil if the record is only read
}

func (b *Bench) newTransactionWorker(shape *Transactions, index int, t *loadgen.Tally) *transactionWorker {
	w := &transactionWorker{recordWorker: b.newWorker(index, t), writes: shape.Writes}
	w.blind = shape.Lossy
	w.transactor, _ = b.target.(Transactor)
	w.chooser = shape.chooser(b.acknowledged(), w.rng)
	w.reads = make([]transactionRecord, shape.Reads)
	for i := range w.writes {
		w.reads[i].value = make([]byte, b.ValueBytes)
	}
	w.body = w.run
	return w
}

// step commits one transaction, with as many attempts as it takes.
func (w *transactionWorker) step(ctx context.Context, intended int64) error {
	w.choose()
	w.version, w.random = w.nextVersion(), w.rng.Uint64()
	began := w.Now()
	conflicts, err := w.transactor.Transact(ctx, w.body)
	if err != nil {
		return fmt.Errorf("transaction of %d reads and %d writes, first of record %d: %w", len(w.reads), w.writes, w.reads[0].id, err)
	}
	w.tally.Record(transactionCommit, began, w.Now(), intended)
	w.tally.Conflicts(uint64(conflicts))
	for i := range w.reads[:w.writes] {
		w.ledger.add(w.reads[i].id)
		w.known.add(knownKey{id: w.reads[i].id, version: w.version})
	}
	return nil
}

// choose draws different records.
func (w *transactionWorker) choose() {
	for i := range w.reads {
		r := &w.reads[i]
		for {
			r.id = w.chooser.next()
			if !slices.ContainsFunc(w.reads[:i], func(other transactionRecord) bool { return other.id == r.id }) {
				break
			}
		}
		r.floor = w.floor(r.id)
		positionOf(r.id).put(r.key[:])
	}
}

// run is one attempt. All writes of a transaction have the same version: they differ in
// their record.
func (w *transactionWorker) run(ctx context.Context, tx Transaction) error {
	for i := range w.reads {
		r := &w.reads[i]
		old, found, err := tx.Get(ctx, r.key[:])
		if err != nil {
			return err
		}
		changes, err := w.check(r.id, old, found, r.floor)
		if err != nil {
			return err
		}
		if r.value != nil {
			w.pool.fillRecord(r.value, r.id, w.version, changes+1, w.random)
		}
	}
	for i := range w.reads[:w.writes] {
		r := &w.reads[i]
		if err := tx.Put(ctx, r.key[:], r.value); err != nil {
			return err
		}
	}
	return nil
}
