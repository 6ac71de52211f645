package kvd

import (
	"bytes"
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Get returns the value of key: the newest that was acknowledged before the
// call, or a newer one, unless AtVersion asks for an old one. A present key has a
// non-nil value, which may be empty.
//
// Errors: ErrNotFound for an absent key, and those that every call has.
func (c *Client) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	item, err := c.get(ctx, key, collectRead(opts))
	return item.Value, err
}

// GetItem is Get with the version that wrote the value and its time to live.
func (c *Client) GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error) {
	return c.getItem(ctx, key, collectRead(opts))
}

func (c *Client) getItem(ctx context.Context, key []byte, o readOptions) (Item, error) {
	item, err := c.get(ctx, key, o)
	if err == nil {
		item.Key = bytes.Clone(key)
	}
	return item, err
}

// get reads one key; the item is without it.
func (c *Client) get(ctx context.Context, key []byte, o readOptions) (Item, error) {
	a, err := c.operate(ctx, "get", frame.Op{Kind: frame.Get, Key: key, AtVersion: o.at, Epoch: o.epoch}, o.timings)
	return a.item, err
}

// GetMany reads all keys at one version and answers in their order; an absent
// key has Found == false. The server's limits of a batch apply to the number of
// keys and to the bytes of the answer: more is ErrTooLarge.
func (c *Client) GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error) {
	return c.getMany(ctx, keys, collectRead(opts))
}

func (c *Client) getMany(ctx context.Context, keys [][]byte, o readOptions) ([]Lookup, error) {
	const name = "get many"
	for _, key := range keys {
		if len(key) == 0 {
			return nil, &Error{Op: name, Err: errEmptyKey}
		}
	}
	if c.fitFrame(keys) {
		return c.getTogether(ctx, name, keys, o)
	}
	var response *kvdpb.BatchGetResponse
	watch := startWatch(o.timings)
	err := c.unaryTimed(ctx, name, watch, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		response, err = conn.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: keys, AtVersion: o.at, Epoch: o.epoch, Options: watch.options()}, opts...)
		watch.answered(response.GetMeta())
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(response.Lookups) != len(keys) {
		return nil, &Error{Op: name, Attempts: 1, Err: ErrInternal, Message: "the server answered another number of keys"}
	}
	c.names.see(response.GetMeta().GetVersion())
	lookups := make([]Lookup, len(keys))
	for i, l := range response.Lookups {
		if l.Found {
			lookups[i] = Lookup{Item: itemOf(l.Item), Found: true}
		}
		lookups[i].Key = bytes.Clone(keys[i])
	}
	return lookups, nil
}
