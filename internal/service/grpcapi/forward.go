package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/forward"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// maxTurns bounds how often this node begins and ceases to lead while it looks for the node that does.
const maxTurns = 4

// forwarded has the node that leads perform a unary call that this one refused as it does not lead,
// unless the client goes there itself. Otherwise it returns the error of the refusal. If this node leads
// by now, the handler performs the call after all.
func (a *api) forwarded(ctx context.Context, c *call, name string, request any, refused error, handler grpc.UnaryHandler) (any, error) {
	for turn := 0; ; turn++ {
		if !forward.Wanted(a.server, name, request, refused) || len(metadata.ValueFromIncomingContext(ctx, kvdpb.FollowsLeaderHeader)) > 0 {
			return nil, refused
		}
		answer, err := forward.Do(ctx, a.server, &c.work, name, request.(proto.Message))
		switch {
		case err == nil:
			return answer, nil
		case err != service.ErrLeads || turn == maxTurns: // as Forward returns it
			return nil, err
		}
		own, err := handler(ctx, request)
		if err == nil {
			return own, nil
		}
		refused = err
	}
}
