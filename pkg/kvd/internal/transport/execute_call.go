package transport

import (
	"context"

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
	response := new(kvdpb.ExecuteResponse)
	err = c.perform(ctx, &tries, &remote{
		method: methodExecute, request: request, response: response,
		sign: func(o *kvdpb.RequestOptions) { request.Options = o }, durability: o.Durability,
	})
	if err != nil {
		return backend.Executed{}, err
	}
	result = backend.Executed{Succeeded: response.Succeeded, Version: response.GetMeta().GetVersion()}
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
