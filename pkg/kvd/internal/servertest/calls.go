package servertest

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// requests makes the request message of each method.
var requests = map[frame.Method]func() proto.Message{
	frame.MethodWrite:           func() proto.Message { return new(kvdpb.WriteRequest) },
	frame.MethodCommit:          func() proto.Message { return new(kvdpb.CommitRequest) },
	frame.MethodExecute:         func() proto.Message { return new(kvdpb.ExecuteRequest) },
	frame.MethodBeginSnapshot:   func() proto.Message { return new(kvdpb.BeginSnapshotRequest) },
	frame.MethodKeepSnapshot:    func() proto.Message { return new(kvdpb.KeepSnapshotRequest) },
	frame.MethodReleaseSnapshot: func() proto.Message { return new(kvdpb.ReleaseSnapshotRequest) },
}

// answerCalls answers the calls of a frame as Unary says.
func (s *Scripted) answerCalls(r *frame.Request) *frame.Response {
	answers := &frame.Response{ID: r.ID}
	for i := range r.Ops {
		op := &r.Ops[i]
		result := frame.Result{Tag: op.Tag, Skipped: op.Skipped}
		if !op.Skipped {
			result = s.answerCall(op)
		}
		answers.Results = append(answers.Results, result)
	}
	return answers
}

func (s *Scripted) answerCall(op *frame.Op) frame.Result {
	request := requests[op.Method]()
	err := proto.Unmarshal(op.Value, request)
	var response any
	if err == nil {
		response, err = s.Unary(request)
	}
	r := frame.Result{Tag: op.Tag, HasPrevious: true}
	if err == nil {
		r.Value, err = proto.Marshal(response.(proto.Message))
	}
	if err != nil {
		return failureOf(err, op.Tag)
	}
	return r
}

// failureOf returns the status of gRPC as a frame has it.
func failureOf(err error, tag uint64) frame.Result {
	s, info := status.Convert(err), infoOf(err)
	r := frame.Result{Tag: tag, Code: int32(s.Code()), Reason: info.GetReason(), Message: s.Message(), Version: statusOf(err).Version}
	for name, value := range info.GetMetadata() {
		r.Details = append(r.Details, frame.Detail{Name: name, Value: value})
	}
	for _, d := range s.Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			r.RetryAfterMillis = uint32(retry.RetryDelay.AsDuration() / time.Millisecond)
		}
	}
	return r
}
