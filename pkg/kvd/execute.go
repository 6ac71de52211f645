package kvd

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Execution is a compare-then-else transaction in one round trip: see
// [Client.Execute].
type Execution struct {
	// If has the guards. If all hold, or there are none, Then is applied, otherwise Else.
	If []Guard
	// Then and Else may be nil or empty, which writes nothing. Their writes have no
	// conditions of their own.
	Then, Else *Batch
}

// Guard is a condition on one key.
type Guard struct {
	Key       []byte
	Condition Condition // IfAbsent, IfPresent, IfVersion or IfValue
}

// ExecuteResult is the result of Execute.
type ExecuteResult struct {
	// Succeeded reports whether all guards held, so that Then was applied.
	Succeeded bool
	// Version is the version of the writes or, if the chosen batch is empty, the version
	// at which the guards were evaluated.
	Version uint64
}

// Execute evaluates the guards and applies one of two batches, atomically. Guards that do not
// hold are a result, not an error. The limits of one batch apply to the guards and both
// batches together. Execute does not change the batches. It takes Durable and Timed.
//
// Execute is applied once, however often it is sent. If the answer to one try is lost and the
// next try chooses an empty batch, the first try may still be applied later: the call then
// returns ErrUncertain. The exception is an Execution whose guards are all IfVersion, above 0:
// once one fails, it fails forever.
//
// Errors: those of Apply. ErrConflict if, in each of a hundred evaluations by the server,
// another write changed the key of a guard. ErrInvalid if a guard has no condition, or a
// write in a batch has one.
func (c *Client) Execute(ctx context.Context, e Execution, opts ...WriteOption) (ExecuteResult, error) {
	const name = "execute"
	o, err := c.writeOptions(opts, ofCommit)
	if err == nil {
		err = e.check()
	}
	if err != nil {
		return ExecuteResult{}, &Error{Op: name, Err: err}
	}
	in, err := c.enter(ctx, name)
	if err != nil {
		return ExecuteResult{}, err
	}
	defer in.leave()
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
