package kvd

import (
	"context"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// Put sets key to value, which may be empty. When it returns nil the write is as
// durable as was asked for.
//
// Errors: ErrUncertain if the write may or may not have happened, and those that
// every call has: after these it did not happen.
func (c *Client) Put(ctx context.Context, key, value []byte, opts ...WriteOption) error {
	return c.write(ctx, "put", frame.Op{Kind: frame.Put, Key: key, Value: value}, opts)
}

// Delete removes key; removing an absent key succeeds. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, key []byte, opts ...WriteOption) error {
	return c.write(ctx, "delete", frame.Op{Kind: frame.Delete, Key: key}, opts)
}

func (c *Client) write(ctx context.Context, name string, op frame.Op, opts []WriteOption) error {
	o, err := c.writeOptions(opts)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	op.Durability = o.durability.wire()
	_, err = c.operate(ctx, name, op)
	return err
}
