package forward

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/trace"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Wanted reports whether a request, which this node has judged and the store refused, is to be
// forwarded: it is a write, and nothing was done because the node does not lead.
//
// Conditions of a transaction that has read something are evaluated at its version, of which the
// node that leads has no snapshot.
func Wanted(s *service.Server, name string, request any, refused error) bool {
	if s.Options().Forward == nil || !errors.Is(refused, kv.ErrNotLeader) || errors.Is(refused, kv.ErrUncertain) {
		return false
	}
	if c, ok := request.(*kvdpb.CommitRequest); ok && c.ReadVersion != 0 {
		for _, m := range c.Mutations {
			if m.GetPrecondition() != nil {
				return false
			}
		}
	}
	_, known := methods[name]
	return known
}

// Do has the node that leads perform a write for which Wanted holds, by the full name of its
// method. Its errors are those of performing it here, and a *service.Error.
func Do(ctx context.Context, s *service.Server, c *service.Call, name string, request proto.Message) (proto.Message, error) {
	message, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	previous := returnsPrevious(request)
	if previous {
		if err := reserve(ctx, s, c); err != nil {
			return nil, err
		}
	}
	var done *service.ForwardedAnswer
	c.Elsewhere(func() (spent trace.Stages) {
		done, err = s.Options().Forward.Forward(ctx, &service.ForwardedWrite{Method: name, Message: message, Identity: c.Identity, Epoch: s.Epoch()})
		if err == nil {
			spent = done.Stages
		}
		return spent
	})
	switch {
	case errors.Is(err, kv.ErrUncertain) && ctx.Err() == nil:
		return nil, broken
	case err != nil:
		return nil, err
	case done.Err != nil:
		return nil, done.Err
	}
	answer := methods[name].answer()
	if err := proto.Unmarshal(done.Message, answer); err != nil {
		return nil, broken // it was done, and what it returned cannot be told
	}
	if previous {
		keep(s, c, answer)
	}
	if r, ok := request.(*kvdpb.CommitRequest); ok && r.SnapshotId != 0 {
		s.ReleaseSnapshot(r.SnapshotId)
	}
	return answer, nil
}

// broken is the error of a write that was sent to the node that leads, and has no answer.
var broken = &service.Error{
	Code: service.Unavailable, Reason: reason.OutcomeUnknown,
	Message: "the node that leads the cluster did not answer this one; the write may or may not have happened",
}

func returnsPrevious(request proto.Message) bool {
	r, ok := request.(interface{ GetReturnPrevious() bool })
	return ok && r.GetReturnPrevious()
}

// reserve waits for the memory of the largest value.
func reserve(ctx context.Context, s *service.Server, c *service.Call) error {
	bytes := int64(kv.ValueCopies * s.Limits().ValueBytes)
	if err := s.Memory().Wait(ctx, bytes, c.Budget.Held()); err != nil {
		return s.NoMemory(err)
	}
	c.Budget.Grant(bytes)
	return nil
}

// keep uses what was reserved for the previous value in an answer. The quota of the client is
// charged for the whole answer later.
func keep(s *service.Server, c *service.Call, answer proto.Message) {
	c.Budget.Meter(nil)
	c.Budget.Reset(s.Limits().ValueBytes)
	c.Budget.Take(len(answer.(interface{ GetPrevious() *kvdpb.Item }).GetPrevious().GetValue()))
}
