package grpcapi

import (
	"context"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/service/forward"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// forwarded has the node that leads perform a unary call that this one refused as it does not lead,
// unless the client goes there itself. Otherwise it returns the error of the refusal.
func (a *api) forwarded(ctx context.Context, c *call, name string, request any, refused error) (any, error) {
	if !forward.Wanted(a.server, name, request, refused) || len(metadata.ValueFromIncomingContext(ctx, kvdpb.FollowsLeaderHeader)) > 0 {
		return nil, refused
	}
	answer, err := forward.Do(ctx, a.server, &c.work, name, request.(proto.Message))
	if err != nil {
		return nil, err
	}
	return answer, nil
}
