package workload

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Audit reads all records and compares them with what the trials did: each record must
// be present, with exactly as many changes as were acknowledged. It calls told every
// second with its progress.
func (b *Bench) Audit(ctx context.Context, workers int, told func(done, total uint64)) error {
	c := newCrew()
	defer c.cancelOps()
	total := b.acknowledged()
	var next atomic.Uint64
	done := c.start(workers, func(int) error {
		buf := make([]byte, b.ValueBytes)
		for !c.stopping.Load() {
			id := next.Add(1) - 1
			if id >= total {
				return nil
			}
			if err := b.audit(c.opCtx, id, buf); err != nil {
				return fmt.Errorf("audit: %w", err)
			}
		}
		return nil
	})
	for c.sleep(ctx, time.Second, done) {
		told(min(next.Load(), total), total)
	}
	if ctx.Err() != nil {
		c.finish(done)
		return errors.Join(c.err(), ctx.Err())
	}
	<-done
	return c.err()
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
		return fmt.Errorf("%w: record %d has %d changes, last by %v, but %d were acknowledged", ErrWrongAnswer, id, changes, v, want)
	}
	return nil
}

func (r *records) lost(id uint64) error {
	return fmt.Errorf("%w: record %d (key %s) is lost: its insertion was acknowledged, and no record is ever deleted",
		ErrWrongAnswer, id, positionOf(id).key())
}
