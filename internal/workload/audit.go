package workload

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Audit reads all records and compares them with what the trials did: each record must
// be present, with exactly as many changes as were acknowledged. It calls told at the
// beginning, every second, and at the end, with its progress.
func (b *Bench) Audit(ctx context.Context, workers int, told func(done, total uint64)) error {
	buffers := make([][]byte, workers)
	for i := range buffers {
		buffers[i] = make([]byte, b.ValueBytes)
	}
	err := loadgen.ForEach(ctx, workers, b.acknowledged(), told, func(ctx context.Context, worker int, id uint64) error {
		return b.audit(ctx, id, buffers[worker])
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (r *records) audit(ctx context.Context, id uint64, buf []byte) error {
	value, found, err := r.target.Get(ctx, positionOf(id).key(), buf)
	if err != nil {
		return fmt.Errorf("get record %d: %w", id, err)
	}
	if !found {
		return r.lost(id)
	}
	v, changes, err := checkRecord(value, id)
	if err != nil {
		return err
	}
	if want := r.ledger.count(id); changes != want {
		return fmt.Errorf("%w: %s has %d changes, last by %v, but %d were acknowledged", ErrWrongAnswer, recordName(id), changes, v, want)
	}
	return nil
}

func (r *records) lost(id uint64) error {
	return fmt.Errorf("%w: %s is lost: its insertion was acknowledged, and no record is ever deleted",
		ErrWrongAnswer, recordName(id))
}
