package workload

import (
	"context"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// cost returns the generator's cost of what a trial of the bench does, a Core, a Transactions or
// the name of an operation: what measure returned for it, which is called once.
func (b *Bench) cost(of any, measure func() (time.Duration, error)) (time.Duration, error) {
	if cost, ok := b.costs[of]; ok {
		return cost, nil
	}
	cost, err := measure()
	if err == nil {
		b.costs[of] = cost
	}
	return cost, err
}

// coreCost returns the generator's cost of one operation of a workload: it runs the
// same worker against a target that does almost nothing. The cost includes the target's
// copy of a value, so it is too high rather than too low.
func (b *Bench) coreCost(core *Core) (time.Duration, error) {
	return b.cost(*core, func() (time.Duration, error) { return b.measureCore(core) })
}

func (b *Bench) measureCore(core *Core) (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	w := twin.newCoreWorker(core, &loadgen.Span{}, 0, loadgen.NewTally(coreKinds, 0))
	ops := loadgen.CostRound(b.ValueBytes)
	if core.Scan > 0 {
		ops = max(ops*2/mostScanned, 1)
	}
	return loadgen.BestRound(ops, func() error { return w.step(context.Background(), 0) })
}

// transactionCost is coreCost for a transaction.
func (b *Bench) transactionCost(shape *Transactions) (time.Duration, error) {
	return b.cost(*shape, func() (time.Duration, error) { return b.measureTransactions(shape) })
}

func (b *Bench) measureTransactions(shape *Transactions) (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	small := *shape // with fewer records than reads, the cost is that of reading all records
	small.Reads = min(small.Reads, int(twin.Count))
	small.Writes = min(small.Writes, small.Reads)
	w := twin.newTransactionWorker(&small, 0, loadgen.NewTally(transactionKinds, 0))
	return loadgen.BestRound(max(loadgen.CostRound(b.ValueBytes)/shape.Reads, 1), func() error { return w.step(context.Background(), 0) })
}

// costBench returns a bench for one worker, with a target that does almost nothing and
// with as many records as the cost measurement needs.
func (b *Bench) costBench() (*Bench, error) {
	r := b.Records
	r.Count = min(r.Count, uint64(max(loadgen.CostBytes/2/r.ValueBytes, 1)))
	twin := newBench(&recordSlots{}, r, b.pool)
	w := twin.newWorker(0, loadgen.NewTally(coreKinds, 0))
	for range r.Count {
		if err := w.insert(context.Background(), 0); err != nil {
			return nil, err
		}
	}
	twin.newTrial(loadgen.Span{}, nil, loadgen.Observer{})
	return twin, nil
}

// updateCost is coreCost for an update.
func (b *Bench) updateCost() (time.Duration, error) {
	return b.cost(snapshotOperations[snapshotPut], b.measureUpdates)
}

func (b *Bench) measureUpdates() (time.Duration, error) {
	twin, err := b.costBench()
	if err != nil {
		return 0, err
	}
	w := twin.newUpdater(0, loadgen.NewTally(snapshotKinds, 0))
	return loadgen.BestRound(loadgen.CostRound(b.ValueBytes), func() error { return w.step(context.Background(), 0) })
}

// recordSlots keeps record n in slot n: the cheapest target that passes the checks of a
// worker. For one worker only.
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
	} else { // a single worker inserts in order
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

// slotTransaction writes immediately: its worker does all reads first.
type slotTransaction struct{ slots *recordSlots }

func (t slotTransaction) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return t.slots.Get(ctx, key, nil)
}

func (t slotTransaction) Put(ctx context.Context, key, value []byte) error {
	return t.slots.Put(ctx, key, value)
}

// Delete does nothing: no record is ever deleted.
func (s *recordSlots) Delete(context.Context, []byte) error { return nil }

func (s *recordSlots) Close() error { return nil }
