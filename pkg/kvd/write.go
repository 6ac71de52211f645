package kvd

import (
	"bytes"
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Writer is what a Client and a Txn share, so that helpers may take either.
type Writer interface {
	Put(ctx context.Context, key, value []byte, opts ...WriteOption) error
	Delete(ctx context.Context, key []byte, opts ...WriteOption) error
	DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error
}

var _ Writer = (*Client)(nil)

// Written is what a write did.
type Written struct {
	// Version is that of the write.
	Version uint64
	// Previous is what the key held before, a copy. Nil: the key was absent, or the write
	// did not have ReturnPrevious.
	Previous *Item
}

// Put sets key to value, which may be empty. When it returns nil the write is as
// durable as was asked for, and happened once, however often it was sent. It
// takes Durable, TTL, a condition and Timed.
//
// Errors: ErrConflict if its condition did not hold, ErrUncertain if the write
// may or may not have happened, and those that every call has: after all but
// ErrUncertain it did not happen. An error that matches both is of a condition
// that did not hold at a second try, while the first one was lost.
func (c *Client) Put(ctx context.Context, key, value []byte, opts ...WriteOption) error {
	_, err := c.put(ctx, key, value, opts, ofPut)
	return err
}

// PutItem is Put that returns the version of the write and, with ReturnPrevious, which
// it takes too, what the key held before.
func (c *Client) PutItem(ctx context.Context, key, value []byte, opts ...WriteOption) (Written, error) {
	return c.put(ctx, key, value, opts, ofPut|chosePrevious)
}

func (c *Client) put(ctx context.Context, key, value []byte, opts []WriteOption, takes choices) (Written, error) {
	o, err := c.writeOptions(opts, takes)
	if err != nil {
		return Written{}, &Error{Op: "put", Err: err}
	}
	return c.write(ctx, "put", backend.Op{Mutation: backend.Mutation{Kind: backend.Put, Key: key, Value: value}}, &o)
}

// Delete removes key; removing an absent key succeeds. It takes the options of
// Put but for TTL. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, key []byte, opts ...WriteOption) error {
	_, err := c.delete(ctx, key, opts, ofDelete)
	return err
}

// DeleteItem is to Delete what PutItem is to Put.
func (c *Client) DeleteItem(ctx context.Context, key []byte, opts ...WriteOption) (Written, error) {
	return c.delete(ctx, key, opts, ofDelete|chosePrevious)
}

func (c *Client) delete(ctx context.Context, key []byte, opts []WriteOption, takes choices) (Written, error) {
	o, err := c.writeOptions(opts, takes)
	if err != nil {
		return Written{}, &Error{Op: "delete", Err: err}
	}
	return c.write(ctx, "delete", backend.Op{Mutation: backend.Mutation{Kind: backend.Delete, Key: key}}, &o)
}

func (c *Client) write(ctx context.Context, name string, op backend.Op, o *writeOptions) (Written, error) {
	o.apply(&op)
	a, err := c.operate(ctx, name, op, o.timings)
	if err != nil {
		return Written{}, err
	}
	return written(&op, &a), nil
}

// written is what the answer to a write says.
func written(op *backend.Op, a *backend.Answer) Written {
	w := Written{Version: a.Version}
	if op.ReturnPrevious && a.Found {
		previous := Item(a.Item)
		previous.Key = bytes.Clone(op.Key)
		w.Previous = &previous
	}
	return w
}

// DeleteRange removes every key of a range at one version, at a cost that does
// not depend on how many there are. All() is every key; a range whose start is not
// below its end removes nothing. It takes Durable and Timed. Errors are those of
// Put.
func (c *Client) DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error {
	const name = "delete range"
	o, err := c.writeOptions(opts, ofCommit)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	_, err = c.apply(ctx, name, []backend.Mutation{{Kind: backend.DeleteRange, Key: r.Start, Value: r.End}}, &o)
	return err
}
