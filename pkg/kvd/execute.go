package kvd

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Execution is a compare-then-else transaction in one round trip: see
// [Client.Execute].
type Execution struct {
	// If is what must hold for Then; if one guard does not hold, Else is applied.
	// Without guards Then is applied.
	If []Guard
	// Then and Else are applied whole. Nil and the empty batch write nothing. Their
	// writes have no conditions of their own.
	Then, Else *Batch
}

// Guard is a condition on one key.
type Guard struct {
	Key       []byte
	Condition Condition // IfAbsent, IfPresent, IfVersion or IfValue
}

// ExecuteResult says what an Execute did.
type ExecuteResult struct {
	// Succeeded reports whether all guards held, so that Then was applied.
	Succeeded bool
	// Version is that of the writes. If the chosen batch is empty, it is the version
	// at which the guards were evaluated.
	Version uint64
}

// Execute evaluates the guards and applies one of two batches, atomically: no
// key of a guard changes between. Guards that do not hold are a result, not an
// error. The guards and the writes of both batches together may have as many
// operations and bytes as one batch. Execute keeps no slice and leaves the batches
// as they are. It takes Durable and Timed.
//
// It is applied once, however often it is sent. If the answer to a try is lost, and a
// later try chooses an empty batch, the earlier try may still be applied: that is
// ErrUncertain, unless a guard failed for good because all guards are IfVersion of
// versions above 0.
//
// Errors: ErrConflict if other writes changed the keys of the guards during each of a
// hundred evaluations by the server; else those of Apply. ErrInvalid if a guard has
// no condition, or a write of a batch has one.
func (c *Client) Execute(ctx context.Context, e Execution, opts ...WriteOption) (ExecuteResult, error) {
	const name = "execute"
	o, err := c.writeOptions(opts, ofCommit)
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return ExecuteResult{}, &Error{Op: name, Err: err}
	}
	if err := c.enter(ctx, name, o.timings); err != nil {
		return ExecuteResult{}, err
	}
	defer c.calls.leave()
	executed, err := c.backend.Execute(ctx, e.execution(), o.backend())
	if err != nil {
		return ExecuteResult{}, failed(name, err)
	}
	return ExecuteResult(executed), nil
}

// check returns ErrInvalid for what can never succeed.
func (e *Execution) check() error {
	for i := range e.If {
		g := &e.If[i]
		switch {
		case len(g.Key) == 0:
			return fmt.Errorf("guard %d: %w", i, errEmptyKey)
		case g.Condition.is.Kind == 0:
			return fmt.Errorf("%w: guard %d has no condition", ErrInvalid, i)
		}
	}
	for _, b := range []*Batch{e.Then, e.Else} {
		switch {
		case b == nil:
		case b.err != nil:
			return b.err
		case b.conditions > 0:
			return fmt.Errorf("%w: a write of an execution has a condition; make it a guard", ErrInvalid)
		}
	}
	return nil
}

// execution is what the backend performs. It shares memory with e.
func (e *Execution) execution() *backend.Execution {
	x := &backend.Execution{Then: e.Then.mutations(), Else: e.Else.mutations()}
	for i := range e.If {
		x.Guards = append(x.Guards, backend.Guard{Key: e.If[i].Key, Condition: e.If[i].Condition.is})
	}
	return x
}
