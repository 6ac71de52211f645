package kvd

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Writer is what a Client and a Txn share, so that helpers may take either.
type Writer interface {
	Put(ctx context.Context, key, value []byte, opts ...WriteOption) error
	Delete(ctx context.Context, key []byte, opts ...WriteOption) error
	DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error
}

var _ Writer = (*Client)(nil)

// Put sets key to value, which may be empty. When it returns nil the write is as
// durable as was asked for, and happened once, however often it was sent. It
// takes all options of writes.
//
// Errors: ErrConflict if its condition did not hold, ErrUncertain if the write
// may or may not have happened, and those that every call has: after all but
// ErrUncertain it did not happen. An error that matches both is of a condition
// that did not hold at a second try, while the first one was lost.
func (c *Client) Put(ctx context.Context, key, value []byte, opts ...WriteOption) error {
	o, err := c.writeOptions(opts, ofPut)
	if err != nil {
		return &Error{Op: "put", Err: err}
	}
	return c.write(ctx, "put", frame.Op{Kind: frame.Put, Key: key, Value: value, TTLMillis: ttlMillis(o.ttl)}, &o)
}

// Delete removes key; removing an absent key succeeds. It takes the options of
// Put but for TTL. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, key []byte, opts ...WriteOption) error {
	o, err := c.writeOptions(opts, ofDelete)
	if err != nil {
		return &Error{Op: "delete", Err: err}
	}
	return c.write(ctx, "delete", frame.Op{Kind: frame.Delete, Key: key}, &o)
}

func (c *Client) write(ctx context.Context, name string, op frame.Op, o *writeOptions) error {
	o.apply(&op)
	a, err := c.operate(ctx, name, op, o.timings)
	if err == nil {
		o.reportAll(&op, &a)
	}
	return err
}

// DeleteRange removes every key of a range at one version, at a cost that does
// not depend on how many there are. All() is every key; a range whose start is not
// below its end removes nothing. It takes Durable, WrittenAt and Timed. Errors are
// those of Put.
func (c *Client) DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error {
	const name = "delete range"
	o, err := c.writeOptions(opts, ofCommit)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	request := &kvdpb.DeleteRangeRequest{Range: r.wire()}
	_, err = c.unaryWrite(ctx, name, &o, false, func(ctx context.Context, conn *conn, options *kvdpb.RequestOptions, opts ...grpc.CallOption) (*kvdpb.ResponseMeta, error) {
		request.Options = options
		response, err := conn.kv.DeleteRange(ctx, request, opts...)
		return response.GetMeta(), err
	})
	return err
}
