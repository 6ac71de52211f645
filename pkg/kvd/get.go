package kvd

import (
	"bytes"
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Item is a key with its value and the version that wrote it. Versions grow
// with every write of the store.
type Item struct {
	Key, Value []byte
	Version    uint64
}

// Lookup is one answer of GetMany.
type Lookup struct {
	Item
	Found bool
}

// Get returns the value of key: the newest that was acknowledged before the
// call, or a newer one. A present key has a non-nil value, which may be empty.
//
// Errors: ErrNotFound for an absent key, and those that every call has.
func (c *Client) Get(ctx context.Context, key []byte) ([]byte, error) {
	a, err := c.operate(ctx, "get", frame.Op{Kind: frame.Get, Key: key})
	return a.value, err
}

// GetItem is Get with the version that wrote the value.
func (c *Client) GetItem(ctx context.Context, key []byte) (Item, error) {
	a, err := c.operate(ctx, "get", frame.Op{Kind: frame.Get, Key: key})
	if err != nil {
		return Item{}, err
	}
	return Item{Key: bytes.Clone(key), Value: a.value, Version: a.version}, nil
}

// GetMany reads all keys at one version and answers in their order; an absent
// key has Found == false. The server's limits of a batch apply to the number of
// keys and to the bytes of the answer: more is ErrTooLarge.
func (c *Client) GetMany(ctx context.Context, keys [][]byte) ([]Lookup, error) {
	for _, key := range keys {
		if len(key) == 0 {
			return nil, &Error{Op: "get many", Err: errEmptyKey}
		}
	}
	var response *kvdpb.BatchGetResponse
	err := c.unary(ctx, "get many", false, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		response, err = conn.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: keys}, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(response.Lookups) != len(keys) {
		return nil, &Error{Op: "get many", Attempts: 1, Err: ErrInternal, Message: "the server answered another number of keys"}
	}
	lookups := make([]Lookup, len(keys))
	for i, l := range response.Lookups {
		lookups[i] = Lookup{Item: Item{Key: bytes.Clone(keys[i])}, Found: l.Found}
		if l.Found {
			lookups[i].Value = append([]byte{}, l.GetItem().GetValue()...)
			lookups[i].Version = l.GetItem().GetVersion()
		}
	}
	return lookups, nil
}
