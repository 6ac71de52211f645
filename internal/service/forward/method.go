package forward

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// method is a method of kv.proto that is forwarded.
type method struct {
	name            string // on the node that leads, for its counters
	request, answer func() proto.Message
	perform         func(ctx context.Context, s *service.Server, c *service.Call, m *service.Method, request proto.Message) (proto.Message, error)
}

// methods are all that write, by full name.
var methods = map[string]method{
	kvdpb.KVService_Put_FullMethodName:         of("Forwarded.Put", messages.Put),
	kvdpb.KVService_Delete_FullMethodName:      of("Forwarded.Delete", messages.Delete),
	kvdpb.KVService_DeleteRange_FullMethodName: of("Forwarded.DeleteRange", messages.DeleteRange),
	kvdpb.TxnService_Commit_FullMethodName:     of("Forwarded.Commit", messages.Commit),
	kvdpb.TxnService_Execute_FullMethodName:    of("Forwarded.Execute", messages.Execute),
	kvdpb.KVService_Write_FullMethodName: {
		name:    "Forwarded.Write",
		request: empty[*kvdpb.WriteRequest],
		answer:  empty[*kvdpb.WriteResponse],
		perform: func(ctx context.Context, s *service.Server, c *service.Call, m *service.Method, request proto.Message) (proto.Message, error) {
			return answerOf(messages.Write(ctx, s, c, m, request.(*kvdpb.WriteRequest)))
		},
	},
}

// of returns the method that a function performs.
func of[Q, A proto.Message](name string, perform func(context.Context, *service.Server, *service.Call, Q) (A, error)) method {
	return method{
		name:    name,
		request: empty[Q],
		answer:  empty[A],
		perform: func(ctx context.Context, s *service.Server, c *service.Call, _ *service.Method, request proto.Message) (proto.Message, error) {
			return answerOf(perform(ctx, s, c, request.(Q)))
		},
	}
}

// answerOf returns no answer that is a nil pointer.
func answerOf[A proto.Message](answer A, err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// empty returns an empty message.
func empty[M proto.Message]() proto.Message {
	var none M
	return none.ProtoReflect().New().Interface()
}
