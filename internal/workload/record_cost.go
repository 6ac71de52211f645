package workload

import (
	"context"
	"slices"
	"time"
)

// coreCost returns what one operation of a workload costs the generator: the
// same worker against a target that does next to nothing. The target's copy of a
// value is in it, so it is rather too high than too low.
func (b *Bench) coreCost(core *Core) (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	w := twin.newCoreWorker(core, &Span{}, 0, newTally(coreKinds))
	ops := costRound(b.ValueBytes)
	if core.Scan > 0 {
		ops = max(ops*2/mostScanned, 1)
	}
	return bestRound(ops, func() error { return w.step(context.Background(), 0) })
}

// transactionCost is coreCost of a transaction.
func (b *Bench) transactionCost(shape *Transactions) (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	small := *shape // more reads than there are records cost as much as all of them
	small.Reads = min(small.Reads, int(twin.Count))
	small.Writes = min(small.Writes, small.Reads)
	w := twin.newTransactionWorker(&small, 0, newTally(transactionKinds))
	return bestRound(max(costRound(b.ValueBytes)/shape.Reads, 1), func() error { return w.step(context.Background(), 0) })
}

// costBench returns a bench on a target that does next to nothing, for one
// worker, with as many records as the cost is measured on.
func (b *Bench) costBench() (*Bench, error) {
	r := b.Records
	r.Count = min(r.Count, uint64(max(costBytes/2/r.ValueBytes, 1)))
	twin, err := NewBench(&recordSlots{}, r)
	if err != nil {
		return nil, err
	}
	w := twin.newWorker(0, newTally(coreKinds))
	for range r.Count {
		if err := w.insert(context.Background(), 0); err != nil {
			return nil, err
		}
	}
	twin.newTrial(Span{}, nil, TrialObserver{})
	return twin, nil
}

// updateCost is coreCost of an update.
func (b *Bench) updateCost() (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	w := twin.newUpdater(0, newTally(snapshotKinds))
	return bestRound(costRound(b.ValueBytes), func() error { return w.step(context.Background(), 0) })
}

// recordSlots keeps record n in slot n: the least that a target can do and still
// pass the checks of a worker. It is for one worker.
type recordSlots struct {
	values [][]byte
	buf    [RecordKeyBytes]byte
}

func (s *recordSlots) slot(key []byte) uint64 {
	p, _ := parsePosition(key)
	return p.id()
}

func (s *recordSlots) Put(_ context.Context, key, value []byte) error {
	id := s.slot(key)
	if id < uint64(len(s.values)) {
		copy(s.values[id], value)
	} else { // one worker inserts one after the other
		s.values = append(s.values, slices.Clone(value))
	}
	return nil
}

func (s *recordSlots) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	id := s.slot(key)
	if id >= uint64(len(s.values)) {
		return nil, false, nil
	}
	return s.values[id], true, nil
}

func (s *recordSlots) Scan(_ context.Context, start []byte, n int, visit func(key, value []byte) error) error {
	p, _ := parsePosition(start)
	for more := true; more && n > 0; n-- {
		p.put(s.buf[:])
		if err := visit(s.buf[:], s.values[p.id()]); err != nil {
			return err
		}
		p, more = p.successor(uint64(len(s.values)))
	}
	return nil
}

func (s *recordSlots) Transact(ctx context.Context, body func(context.Context, Transaction) error) (int, error) {
	return 0, body(ctx, slotTransaction{s})
}

// slotTransaction writes at once: its worker reads everything before.
type slotTransaction struct{ slots *recordSlots }

func (t slotTransaction) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return t.slots.Get(ctx, key, nil)
}

func (t slotTransaction) Put(ctx context.Context, key, value []byte) error {
	return t.slots.Put(ctx, key, value)
}

// No record is ever deleted.
func (s *recordSlots) Delete(context.Context, []byte) error { return nil }

func (s *recordSlots) Close() error { return nil }
