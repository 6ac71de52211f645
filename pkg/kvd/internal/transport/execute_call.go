package transport

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Execute implements backend.Backend.
func (c *Network) Execute(ctx context.Context, e *backend.Execution, o backend.WriteOptions) (result backend.Executed, err error) {
	tries := c.writeAttempts(ctx)
	tries.timer = startTimer(o.Timings)
	tries.write, tries.anew = len(e.Then)+len(e.Else) > 0, true
	request := &kvdpb.ExecuteRequest{ThenMutations: wireMutations(e.Then), ElseMutations: wireMutations(e.Else)}
	for i := range e.Guards {
		g := &e.Guards[i]
		request.Guards = append(request.Guards, &kvdpb.ExecuteRequest_Guard{Key: g.Key, Precondition: precondition(&g.Condition)})
	}
	err = c.call(ctx, &tries, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		request.Options = tries.requestOptions(kvdpb.Durability(o.Durability))
		response, err := conn.txn.Execute(ctx, request, opts...)
		tries.timer.answered(response.GetMeta())
		result = backend.Executed{Succeeded: response.GetSucceeded(), Version: response.GetMeta().GetVersion()}
		return err
	})
	if err != nil {
		return backend.Executed{}, err
	}
	c.requestIDs.observe(result.Version)
	if tries.doubt && mayStillApply(e, result.Succeeded) {
		return backend.Executed{}, &backend.Failure{
			Attempts: tries.n + 1, Err: backend.ErrUncertain,
			Message: "the last try wrote nothing, but an earlier one may still be applied",
		}
	}
	return result, nil
}

// mayStillApply reports whether an earlier attempt, whose answer was lost, may still apply a batch
// after a later attempt was answered. The store remembers a batch that it applied, so this is possible
// only if the later attempt chose an empty batch. If a guard asks for a version that its key does not
// have, the key will never have it, so Then will never be chosen.
func mayStillApply(e *backend.Execution, succeeded bool) bool {
	if succeeded {
		return len(e.Then) == 0
	}
	if len(e.Else) > 0 {
		return false
	}
	for i := range e.Guards {
		if e.Guards[i].Condition.Kind != backend.VersionEquals {
			return true
		}
	}
	return false
}
