package transport

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// method is a method of kv.proto with the two forms of a call of it. Both carry the same messages.
type method struct {
	grpc  string       // its name in gRPC
	frame frame.Method // 0: it has no form in frames
}

var (
	methodWrite           = method{kvdpb.KVService_Write_FullMethodName, frame.MethodWrite}
	methodCommit          = method{kvdpb.TxnService_Commit_FullMethodName, frame.MethodCommit}
	methodExecute         = method{kvdpb.TxnService_Execute_FullMethodName, frame.MethodExecute}
	methodBeginSnapshot   = method{kvdpb.TxnService_BeginSnapshot_FullMethodName, frame.MethodBeginSnapshot}
	methodKeepSnapshot    = method{kvdpb.TxnService_KeepSnapshot_FullMethodName, frame.MethodKeepSnapshot}
	methodReleaseSnapshot = method{kvdpb.TxnService_ReleaseSnapshot_FullMethodName, frame.MethodReleaseSnapshot}
	methodDeleteRange     = method{grpc: kvdpb.KVService_DeleteRange_FullMethodName}
)

// remote is a call of a method.
type remote struct {
	method
	request, response proto.Message
	// sign puts the options of an attempt into the request of a write, which is as durable as
	// durability says. It is nil for other calls.
	sign       func(*kvdpb.RequestOptions)
	durability backend.Durability
}

// meta returns what the response says of the call, nil if it says nothing.
func (r *remote) meta() *kvdpb.ResponseMeta {
	if m, ok := r.response.(interface{ GetMeta() *kvdpb.ResponseMeta }); ok {
		return m.GetMeta()
	}
	return nil
}

// perform attempts a call until it succeeds or must not be tried again. An attempt is sent in a frame
// if the server takes calls in frames and the call fits, otherwise as a gRPC call.
func (c *Network) perform(ctx context.Context, tries *attempts, r *remote) error {
	for {
		if r.sign != nil {
			r.sign(tries.requestOptions(kvdpb.Durability(r.durability)))
		}
		f, framed := c.tryInFrame(ctx, tries, r)
		if !framed {
			f = c.tryUnary(ctx, tries, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
				err := conn.grpc.Invoke(ctx, r.grpc, r.request, r.response, opts...)
				tries.timer.answered(r.meta())
				return err
			})
		}
		if f == nil {
			tries.succeeded()
			return nil
		}
		if err := tries.again(ctx, f); err != nil {
			return err
		}
	}
}

// performWrite is perform for a write that is in doubt until it is answered. It returns the version
// of the write. lasting says that a condition of the write, once it fails, always fails.
func (c *Network) performWrite(ctx context.Context, r *remote, o *backend.WriteOptions, lasting bool) (version uint64, err error) {
	tries := c.writeAttempts(ctx)
	tries.lasting = lasting
	tries.timer = startTimer(o.Timings)
	r.durability = o.Durability
	if err := c.perform(ctx, &tries, r); err != nil {
		return 0, err
	}
	version = r.meta().GetVersion()
	c.requestIDs.observe(version)
	return version, nil
}

// errNoCalls is the fault of a call whose frame cannot be sent, because the connection to the server
// does not take calls in frames.
var errNoCalls = errors.New("the server takes no calls in frames")

// tryInFrame attempts a call once, in a frame. It reports false if the call cannot be sent in one.
func (c *Network) tryInFrame(ctx context.Context, tries *attempts, r *remote) (f *fault, framed bool) {
	if r.frame == 0 || tries.asCall && (c.endpoints == 1 || tries.forward) || c.options.Unframed || proto.Size(r.request) > c.options.Frames.Bytes {
		return nil, false
	}
	message, err := proto.MarshalOptions{UseCachedSize: true}.Marshal(r.request)
	if err != nil {
		return nil, false // gRPC says why
	}
	op := frame.Op{Kind: frame.Call, Method: r.frame, Value: message}
	op.Durability = kvdpb.Durability(r.durability)
	a, f := c.attempt(ctx, &op, tries)
	if f != nil {
		f.elsewhere = f.elsewhere || f.reason == kvdpb.ReasonNotLeader && c.endpoints == 1 // so that it is asked to forward a call
		return f, f.err != errNoCalls
	}
	if err := proto.Unmarshal(a.Value.Bytes, r.response); err != nil {
		return &fault{err: backend.ErrInternal, message: "the answer of a call cannot be decoded: " + err.Error()}, true
	}
	tries.timer.answered(r.meta())
	return nil, true
}
