package workload

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// snapshotProbes is how many records are read when a snapshot is taken and again before
// it is dropped. Guessed: few enough to cost nothing, enough to include some that were
// updated in between.
const snapshotProbes = 100

// snapshotWorker holds one snapshot at a time and checks that it does not change.
type snapshotWorker struct {
	*records
	snapshotter Snapshotter
	rng         *rand.Rand
	tally       *loadgen.Tally

	held   Snapshot // nil before the first
	probes [snapshotProbes]snapshotProbe
}

// snapshotProbe is a record and its first value in the snapshot.
type snapshotProbe struct {
	id    uint64
	value []byte
}

func (b *Bench) newSnapshotWorker(t *loadgen.Tally) *snapshotWorker {
	w := &snapshotWorker{
		records: b.records,
		rng:     rand.New(rand.NewPCG(b.Seed^b.trials<<32, 0x736e6170)),
		tally:   t,
	}
	w.snapshotter, _ = b.target.(Snapshotter)
	return w
}

// step drops the current snapshot and takes another one.
func (w *snapshotWorker) step(ctx context.Context, intended int64) error {
	if err := w.drop(ctx); err != nil {
		return err
	}
	began := w.Now()
	var err error
	if w.held, err = w.snapshotter.TakeSnapshot(ctx); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	w.tally.Record(snapshotTake, began, w.Now(), intended)
	records := w.acknowledged()
	for i := range w.probes {
		p := &w.probes[i]
		p.id = w.rng.Uint64N(records)
		if p.value, err = w.read(ctx, p.id); err != nil {
			return err
		}
	}
	return nil
}

// drop checks and closes the current snapshot, if there is one.
func (w *snapshotWorker) drop(ctx context.Context) error {
	if w.held == nil {
		return nil
	}
	snapshot := w.held
	for i := range w.probes {
		p := &w.probes[i]
		value, err := w.read(ctx, p.id)
		if err != nil {
			return err
		}
		if !bytes.Equal(value, p.value) {
			return fmt.Errorf("%w: %s changed in a snapshot", ErrWrongAnswer, recordName(p.id))
		}
	}
	w.held = nil
	began := w.Now()
	if err := snapshot.Close(); err != nil {
		return fmt.Errorf("drop a snapshot: %w", err)
	}
	w.tally.Record(snapshotDrop, began, w.Now(), 0)
	return nil
}

// read gets a record of the snapshot.
func (w *snapshotWorker) read(ctx context.Context, id uint64) ([]byte, error) {
	value, found, err := w.held.Get(ctx, positionOf(id).key())
	switch {
	case err != nil:
		return nil, fmt.Errorf("get record %d of a snapshot: %w", id, err)
	case !found:
		return nil, w.lost(id)
	}
	if _, _, err := checkRecord(value, id); err != nil {
		return nil, err
	}
	return value, nil
}

// close releases the snapshot after a trial, even one that failed.
func (w *snapshotWorker) close() error {
	if w.held == nil {
		return nil
	}
	snapshot := w.held
	w.held = nil
	return snapshot.Close()
}
