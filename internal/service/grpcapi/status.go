package grpcapi

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// errorOf returns an error as gRPC sends it: with the status that it has, or with that of
// the server's error.
func (a *api) errorOf(m *service.Method, err error) error {
	if err == nil {
		return nil
	}
	if _, has := status.FromError(err); has {
		return err
	}
	return statusError{a.server.Failure(m, err)}
}

// codeOf returns the code that gRPC sends for an error.
func codeOf(err error) service.Code {
	if s, ok := errors.AsType[statusError](err); ok {
		return s.e.Code
	}
	return service.Code(status.Code(err))
}

// statusError makes gRPC send an error with its details.
type statusError struct{ e *service.Error }

func (s statusError) Error() string { return s.e.Message }

// GRPCStatus is what gRPC looks for in an error.
func (s statusError) GRPCStatus() *status.Status {
	info := &errdetails.ErrorInfo{Reason: s.e.Reason, Domain: kvdpb.ErrorDomain, Metadata: messages.MetadataOf(s.e)}
	details := []protoadapt.MessageV1{info}
	if s.e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(s.e.RetryAfter)})
	}
	plain := status.New(codes.Code(s.e.Code), s.e.Message)
	detailed, err := plain.WithDetails(details...)
	if err != nil {
		return plain
	}
	return detailed
}

// messageTooLarge refuses a message by its length.
func messageTooLarge(n int64, limit int) *service.Error {
	return &service.Error{
		Code: service.InvalidArgument, Reason: reason.TooLarge,
		Message: fmt.Sprintf("the request has %d bytes, limit is %d; nothing of it was done", n, limit),
		Size:    n, Limit: int64(limit),
	}
}
