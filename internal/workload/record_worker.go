package workload

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// recordWorker reads and writes records, one at a time, and checks the answers. It does
// not allocate while it runs.
//
// For one goroutine only.
type recordWorker struct {
	*records
	index int
	rng   *rand.Rand
	known *knownKeys
	count uint64 // puts so far, in all trials
	tally *loadgen.Tally
	blind bool // some worker writes blindly, or changes get lost, so floors do not hold

	key   [RecordKeyBytes]byte
	value []byte
	buf   []byte
}

// newWorker returns a worker of the current trial. Its puts differ from those of the
// same worker in other trials, for up to 65,536 trials with 65,536 workers and 4
// billion puts of each.
func (b *Bench) newWorker(index int, t *loadgen.Tally) *recordWorker {
	rng := rand.New(rand.NewPCG(b.Seed^b.trials<<32, uint64(index)))
	return &recordWorker{
		records: b.records,
		index:   index,
		rng:     rng,
		known:   newKnownKeys(false, b.Count, rng),
		count:   b.trials << 32,
		tally:   t,
		value:   make([]byte, b.ValueBytes),
		buf:     make([]byte, b.ValueBytes),
	}
}

// spell writes the key of a record to the worker's memory.
func (w *recordWorker) spell(id uint64) []byte {
	positionOf(id).put(w.key[:])
	return w.key[:]
}

func (w *recordWorker) nextVersion() version {
	w.count++
	return newVersion(w.index, w.count)
}

// read gets a record that must be present.
func (w *recordWorker) read(ctx context.Context, operation int, id uint64, intended int64) error {
	floor := w.floor(id)
	key := w.spell(id)
	began := w.Now()
	value, found, err := w.target.Get(ctx, key, w.buf)
	ended := w.Now()
	if err != nil {
		return fmt.Errorf("get record %d: %w", id, err)
	}
	w.tally.Record(operation, began, ended, intended)
	_, err = w.check(id, value, found, floor)
	return err
}

// check checks a record that was read, given the number of changes that had been
// acknowledged before the read began, and returns the number that the record has.
func (w *recordWorker) check(id uint64, value []byte, found bool, floor uint64) (changes uint64, err error) {
	if !found {
		return 0, w.lost(id)
	}
	v, changes, err := checkRecord(value, id)
	if err != nil {
		return 0, err
	}
	if changes < floor {
		return 0, fmt.Errorf("%w: %s has %d changes, last by %v, but %d were acknowledged before: an update was lost",
			ErrWrongAnswer, recordName(id), changes, v, floor)
	}
	if own, ok := w.known.lookup(id); ok && v.worker() == w.index && v != own.version {
		return 0, fmt.Errorf("%w: %s has the value of %v, but %v came after and was acknowledged",
			ErrWrongAnswer, recordName(id), v, own.version)
	}
	return changes, nil
}

// floor returns the least number of changes that a read that begins now must find.
func (w *recordWorker) floor(id uint64) uint64 {
	if w.blind {
		return 0
	}
	return w.ledger.count(id)
}

// insert puts the next new record.
func (w *recordWorker) insert(ctx context.Context, intended int64) error {
	id := w.insertions.begin()
	if err := w.put(ctx, coreInsert, id, intended); err != nil {
		return err
	}
	w.insertions.end(id)
	return nil
}

// load is insert for a load, which repeats what the target refuses.
func (w *recordWorker) load(ctx context.Context, intended int64) error {
	id := w.insertions.begin()
	if err := untilAccepted(ctx, w.target, func() error { return w.put(ctx, coreInsert, id, intended) }); err != nil {
		return err
	}
	w.insertions.end(id)
	return nil
}

// update replaces a whole record without reading it, which resets its changes.
func (w *recordWorker) update(ctx context.Context, operation int, id uint64, intended int64) error {
	w.ledger.reset(id)
	return w.put(ctx, operation, id, intended)
}

func (w *recordWorker) put(ctx context.Context, operation int, id uint64, intended int64) error {
	v := w.nextVersion()
	w.pool.fillRecord(w.value, id, v, 0, w.rng.Uint64())
	key := w.spell(id)
	began := w.Now()
	if err := w.target.Put(ctx, key, w.value); err != nil {
		return fmt.Errorf("put record %d: %w", id, err)
	}
	w.tally.Record(operation, began, w.Now(), intended)
	w.known.add(knownKey{id: id, version: v})
	return nil
}
