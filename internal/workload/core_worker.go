package workload

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// coreWorker runs the operations of a core workload.
type coreWorker struct {
	*recordWorker
	core       *Core
	chooser    recordChooser
	scanner    Scanner    // set if the workload scans
	transactor Transactor // set if it modifies

	scan   scanCheck
	visit  func(key, value []byte) error // scan.visit, allocated once
	modify modification
	body   func(context.Context, Transaction) error // modify.run, allocated once
}

// modification is the transaction of one read-modify-write.
type modification struct {
	w       *recordWorker
	id      uint64
	floor   uint64
	version version
	random  uint64
}

func (b *Bench) newCoreWorker(core *Core, span *loadgen.Span, index int, t *loadgen.Tally) *coreWorker {
	w := &coreWorker{recordWorker: b.newWorker(index, t), core: core}
	records := b.acknowledged()
	w.chooser = core.chooser(records, core.expected(records, span.Operations), w.Theta, w.rng)
	w.blind = core.Update > 0
	w.scanner, _ = b.target.(Scanner)
	w.transactor, _ = b.target.(Transactor)
	w.visit = w.scan.visit
	w.modify.w = w.recordWorker
	w.body = w.modify.run
	return w
}

// step runs one operation of the workload.
func (w *coreWorker) step(ctx context.Context, intended int64) error {
	operation := w.core.draw(w.rng)
	if operation == coreInsert {
		return w.insert(ctx, intended)
	}
	records := w.acknowledged()
	id := w.chooser.next(records)
	switch operation {
	case coreUpdate:
		return w.update(ctx, coreUpdate, id, intended)
	case coreScan:
		return w.scanFrom(ctx, id, records, intended)
	case coreModify:
		return w.change(ctx, id, intended)
	}
	return w.read(ctx, coreRead, id, intended)
}

// scanFrom scans some records from id on. The latency includes checking each of them,
// as they are not kept; that time is part of the reported cost of the generator.
func (w *coreWorker) scanFrom(ctx context.Context, id, records uint64, intended int64) error {
	wanted := 1 + w.rng.IntN(mostScanned)
	key := w.spell(id)
	w.scan.begin(positionOf(id), wanted, records)
	began := w.Now()
	if err := w.scanner.Scan(ctx, key, wanted, w.visit); err != nil {
		return fmt.Errorf("scan %d records from key %s: %w", wanted, key, err)
	}
	w.tally.Record(coreScan, began, w.Now(), intended)
	return w.scan.end()
}

// change reads a record and writes it back, in one transaction.
func (w *coreWorker) change(ctx context.Context, id uint64, intended int64) error {
	m := &w.modify
	m.id, m.floor, m.version, m.random = id, w.floor(id), w.nextVersion(), w.rng.Uint64()
	w.spell(id)
	began := w.Now()
	conflicts, err := w.transactor.Transact(ctx, w.body)
	if err != nil {
		return fmt.Errorf("read, modify and write record %d: %w", id, err)
	}
	w.tally.Record(coreModify, began, w.Now(), intended)
	w.tally.Conflicts(uint64(conflicts))
	w.ledger.add(id)
	w.known.add(knownKey{id: id, version: m.version})
	return nil
}

func (m *modification) run(ctx context.Context, tx Transaction) error {
	w := m.w
	old, found, err := tx.Get(ctx, w.key[:])
	if err != nil {
		return err
	}
	changes, err := w.check(m.id, old, found, m.floor)
	if err != nil {
		return err
	}
	w.pool.fillRecord(w.value, m.id, m.version, changes+1, m.random)
	return tx.Put(ctx, w.key[:], w.value)
}

// RunCore runs a core workload on the loaded records.
//
// The trial ends without an error when ctx ends. It ends with the first error of an
// operation, or the first wrong answer (ErrWrongAnswer); the trial so far is returned
// with the error, and is nil only if nothing was measured.
func (b *Bench) RunCore(ctx context.Context, core Core, span loadgen.Span, observer loadgen.Observer) (*loadgen.Trial, error) {
	if err := span.Validate(); err != nil {
		return nil, err
	}
	if err := core.demands(b.target); err != nil {
		return nil, err
	}
	cost, err := b.coreCost(&core)
	if err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	t := b.newTrial(span, coreOperations, observer)
	t.Cost = cost
	for i := range span.Workers {
		w := b.newCoreWorker(&core, &span, i, loadgen.NewTally(coreKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.step, Tally: w.tally})
	}
	result, err := t.Do(ctx)
	result.SetConflictRate(coreOperations[coreModify])
	return result, err
}
