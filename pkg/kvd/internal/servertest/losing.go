package servertest

import (
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// TryLog collects the options with which writes arrive at a Scripted server.
type TryLog struct {
	mu   sync.Mutex
	seen []*kvdpb.RequestOptions
}

func (l *TryLog) add(o *kvdpb.RequestOptions) (tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, o)
	return len(l.seen)
}

// Take returns the options of the tries since the last call.
func (l *TryLog) Take() []*kvdpb.RequestOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

func optionsOf(request any) *kvdpb.RequestOptions {
	return request.(interface{ GetOptions() *kvdpb.RequestOptions }).GetOptions()
}

// Losing is a server that answers reads at version 7, loses its connection under
// the first losses tries of each write, and answers later ones by then.
func Losing(log *TryLog, losses int, then func(request any) (any, error)) *Scripted {
	gone := status.Error(codes.Unavailable, "the connection broke")
	s := &Scripted{}
	s.Unary = func(request any) (any, error) {
		if request, ok := request.(*kvdpb.BatchGetRequest); ok {
			return &kvdpb.BatchGetResponse{
				Lookups: make([]*kvdpb.BatchGetResponse_Lookup, len(request.Keys)),
				Meta:    &kvdpb.ResponseMeta{Version: 7},
			}, nil
		}
		if _, ok := request.(*kvdpb.BeginSnapshotRequest); ok {
			return &kvdpb.BeginSnapshotResponse{SnapshotId: 1, Version: 7, LeaseMs: 60_000}, nil
		}
		if _, ok := request.(*kvdpb.ReleaseSnapshotRequest); ok {
			return &kvdpb.ReleaseSnapshotResponse{}, nil
		}
		if log.add(optionsOf(request)) <= losses {
			return nil, gone
		}
		return then(request)
	}
	s.Frames = func(_ int, conn FrameConn) error {
		for {
			frame, err := conn.Recv()
			if err != nil {
				return nil
			}
			response := AnswerAll(frame)
			for i, op := range frame.Ops {
				if op.GetGet() != nil {
					response.Results[i].GetGet().Meta = &kvdpb.ResponseMeta{Version: 7}
					continue
				}
				var request any = op.GetPut()
				if op.GetDelete() != nil {
					request = op.GetDelete()
				}
				if log.add(optionsOf(request)) <= losses {
					return gone
				}
				if _, err := then(request); err != nil {
					response.Results[i] = &kvdpb.PipelineResponse_Result{Tag: op.Tag, Status: statusOf(err)}
				}
			}
			if err := conn.Send(response); err != nil {
				return err
			}
		}
	}
	return s
}

// Succeed returns the answer to a write.
func Succeed(request any) (any, error) {
	meta := &kvdpb.ResponseMeta{Version: 9}
	switch request.(type) {
	case *kvdpb.PutRequest:
		return &kvdpb.PutResponse{Meta: meta}, nil
	case *kvdpb.DeleteRequest:
		return &kvdpb.DeleteResponse{Meta: meta}, nil
	case *kvdpb.DeleteRangeRequest:
		return &kvdpb.DeleteRangeResponse{Meta: meta}, nil
	case *kvdpb.WriteRequest:
		return &kvdpb.WriteResponse{Meta: meta}, nil
	case *kvdpb.CommitRequest:
		return &kvdpb.CommitResponse{Meta: meta}, nil
	case *kvdpb.ExecuteRequest:
		return &kvdpb.ExecuteResponse{Succeeded: true, Meta: meta}, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "%T", request)
}

// statusOf returns an error as a frame has it.
func statusOf(err error) *kvdpb.Status {
	s := &kvdpb.Status{Code: int32(status.Code(err)), Reason: infoOf(err).GetReason()}
	if v, err := strconv.ParseUint(infoOf(err).GetMetadata()[kvdpb.MetadataVersion], 10, 64); err == nil {
		s.Version = v
	}
	return s
}
