package engine

import (
	"slices"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
)

// Failed is closed when the store has failed for good; Err then returns why.
func (e *Engine) Failed() <-chan struct{} { return e.failure.ch }

// Err returns why the store failed, nil while it works.
func (e *Engine) Err() error {
	select {
	case <-e.failure.ch:
		return e.failure.err
	default:
		return nil
	}
}

// fail stops the store for good.
func (e *Engine) fail(err error) {
	e.failure.once.Do(func() {
		e.failure.err = err
		close(e.failure.ch)
		if e.events != nil && e.events.Failed != nil {
			e.events.Failed(err)
		}
	})
}

// writable returns what takes a write, or why the write is refused. While the disk is full,
// writes that only delete are let through; the log refuses them if it has no space.
func (e *Engine) writable(deletes bool) (*writers, error) {
	switch {
	case e.closed.Load():
		return nil, kv.ErrClosed
	case e.Err() != nil:
		return nil, e.Err()
	case e.unwritable != nil:
		return nil, e.readOnlyError()
	case e.opts.ReadOnly:
		return nil, errOpenedToRead
	}
	to, err := e.taking()
	switch {
	case err != nil:
		return nil, err
	case !e.readOnly.Load():
		return to, nil
	case deletes && !e.disk.unwritable.Load():
		e.disk.deletes.Store(true)
		e.disk.clearing.Store(true)
		return to, nil
	}
	return nil, e.readOnlyError()
}

// onlyDeletes reports whether the operations put nothing.
func onlyDeletes(ops []kv.Op) bool {
	return !slices.ContainsFunc(ops, func(op kv.Op) bool { return op.Kind == kv.KindPut })
}

func (e *Engine) backgroundError(err error) {
	if e.events != nil && e.events.BackgroundError != nil {
		e.events.BackgroundError(err)
	}
}

func (e *Engine) corrupt(err error) {
	if e.events != nil && e.events.Corruption != nil {
		e.events.Corruption(err)
	}
}

func (e *Engine) paceChanged(began bool, rate uint64) {
	if e.events != nil && e.events.Stall != nil {
		reason := "memtables"
		if e.budget.deltas.Load() > deltasSoft {
			reason = "deltas"
		}
		e.events.Stall(event.Stall{Reason: reason, Begin: began, Rate: rate})
	}
}
