package kvd

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
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
	w := startWatch(o.timings)
	if !c.calls.enter() {
		return ExecuteResult{}, &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	tries := c.writeAttempts(ctx, name)
	tries.watch = w
	tries.write, tries.anew = e.Then.len()+e.Else.len() > 0, true
	request := e.wire()
	var result ExecuteResult
	err = c.call(ctx, &tries, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		request.Options = tries.requestOptions(o.durability.wire())
		response, err := conn.txn.Execute(ctx, request, opts...)
		tries.watch.answered(response.GetMeta())
		result = ExecuteResult{Succeeded: response.GetSucceeded(), Version: response.GetMeta().GetVersion()}
		return err
	})
	if err != nil {
		return ExecuteResult{}, err
	}
	c.names.see(result.Version)
	if tries.doubt && e.mayStillApply(result.Succeeded) {
		return ExecuteResult{}, &Error{
			Op: name, Attempts: tries.n + 1, Err: ErrUncertain,
			Message: "the last try wrote nothing, but an earlier one may still be applied",
		}
	}
	return result, nil
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

// wire returns the request. It shares memory with e.
func (e *Execution) wire() *kvdpb.ExecuteRequest {
	r := &kvdpb.ExecuteRequest{ThenMutations: e.Then.wire(), ElseMutations: e.Else.wire()}
	for i := range e.If {
		g := &e.If[i]
		r.Guards = append(r.Guards, &kvdpb.ExecuteRequest_Guard{Key: g.Key, Precondition: precondition(&g.Condition.is)})
	}
	return r
}

// mayStillApply reports whether an earlier try, which may be under way, may apply a
// batch after the answer that a later try got. The store remembers a batch that it
// applied, so only the choice of an empty one leaves that open. A key that does not
// have a version now never has it again: Then is then out of the question.
func (e *Execution) mayStillApply(succeeded bool) bool {
	if succeeded {
		return e.Then.len() == 0
	}
	if e.Else.len() > 0 {
		return false
	}
	for i := range e.If {
		if e.If[i].Condition.is.Kind != frame.VersionEquals {
			return true
		}
	}
	return false
}
