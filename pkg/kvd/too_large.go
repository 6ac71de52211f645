package kvd

import (
	"context"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// maxRequestBytes is the largest message that a server with the usual limits takes: a
// put of a key of 4 KiB and a value of 4 MiB, with a condition on as much, or a batch of 8 MiB and 4,096 operations.
// Each operation takes at most 64 bytes beside its keys and values, and a commit has
// as many reads; 64 KiB are for the rest.
const maxRequestBytes = 4<<10 + 2*(4<<20) + 2*4096*64 + 64<<10

// explainTooLarge gives a reason to the refusal of a message that was far too large for
// the server to read. gRPC refuses it before the server's own code runs, with a status
// that may also stand for an answer that was too large: a write would be in doubt.
func explainTooLarge(ctx context.Context, method string, request, answer any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, answer, cc, opts...)
	if status.Code(err) != codes.ResourceExhausted || len(status.Convert(err).Details()) > 0 {
		return err
	}
	message, ok := request.(proto.Message)
	if !ok || proto.Size(message) <= maxRequestBytes {
		return err
	}
	s, detailErr := status.New(codes.ResourceExhausted, fmt.Sprintf("the request has %d bytes, the server takes at most %d; nothing was done",
		proto.Size(message), maxRequestBytes)).WithDetails(&errdetails.ErrorInfo{Reason: kvdpb.ReasonTooLarge, Domain: kvdpb.ErrorDomain})
	if detailErr != nil {
		return err
	}
	return s.Err()
}
