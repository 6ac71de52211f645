package kvd

import (
	"bytes"
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Writer has the writes that a Client and a Txn share.
type Writer interface {
	Put(ctx context.Context, key, value []byte, opts ...WriteOption) error
	Delete(ctx context.Context, key []byte, opts ...WriteOption) error
	DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error
}

var _ Writer = (*Client)(nil)

// Written is the result of a write.
type Written struct {
	// Version is the version of the write.
	Version uint64
	// Previous is the item that the key had before; the caller owns it. It is nil if the
	// key was absent, or if the write did not have ReturnPrevious.
	Previous *Item
}

// Put sets key to value, which may be empty. When it returns nil, the write is as durable as
// was asked for and was applied once, however often it was sent. Put takes Durable, TTL, a
// condition and Timed.
//
// Errors: ErrConflict if the condition did not hold. ErrUncertain if the write may have been
// applied; after any other error it was not applied and will not be. An error may match both:
// the answer to one try was lost, and the condition did not hold in the next.
func (c *Client) Put(ctx context.Context, key, value []byte, opts ...WriteOption) error {
	_, err := c.put(ctx, key, value, opts, ofPut)
	return err
}

// PutItem is Put that returns the version of the write. It also takes ReturnPrevious, and then
// returns the previous item.
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

// Delete removes key. Removing an absent key succeeds. Delete takes the options of Put other
// than TTL. Errors are those of Put.
func (c *Client) Delete(ctx context.Context, key []byte, opts ...WriteOption) error {
	_, err := c.delete(ctx, key, opts, ofDelete)
	return err
}

// DeleteItem is Delete with the results and options of PutItem, other than TTL.
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
	in, err := c.enter(ctx, name)
	if err != nil {
		return Written{}, err
	}
	defer in.leave()
	if len(op.Key) == 0 {
		return Written{}, &Error{Op: name, Err: errEmptyKey}
	}
	a, err := c.backend.Operate(ctx, op, (*backend.Timings)(o.timings))
	if err != nil {
		return Written{}, failed(name, err)
	}
	return written(&op, &a), nil
}

// written is what the answer to a write says.
func written(op *backend.Op, a *backend.Answer) Written {
	w := Written{Version: a.Version}
	if op.ReturnPrevious && a.Found {
		previous := item(bytes.Clone(op.Key), a.Value)
		w.Previous = &previous
	}
	return w
}

// DeleteRange removes every key of a range atomically. The cost does not depend on the number
// of keys. A range whose start is not below its end removes nothing. DeleteRange takes Durable
// and Timed. Errors are those of Put. Batch.DeleteRange with Apply also returns the version.
func (c *Client) DeleteRange(ctx context.Context, r Range, opts ...WriteOption) error {
	const name = "delete range"
	o, err := c.writeOptions(opts, ofCommit)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	_, err = c.apply(ctx, name, []backend.Mutation{{Kind: backend.DeleteRange, Key: r.Start, Value: r.End}}, &o)
	return err
}
