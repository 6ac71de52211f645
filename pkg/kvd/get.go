package kvd

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Get returns the value of key: the newest one that was acknowledged before the call, or a
// newer one. With AtVersion it returns an older one. The value of a present key is never nil,
// but may be empty.
//
// Errors: ErrNotFound if the key is absent.
func (c *Client) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	o, err := collectRead("get", opts)
	if err != nil {
		return nil, err
	}
	v, err := c.get(ctx, key, o)
	return v.Bytes, err
}

// GetItem is Get that also returns the version of the value and its remaining time to live.
func (c *Client) GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error) {
	o, err := collectRead("get", opts)
	if err != nil {
		return Item{}, err
	}
	return c.getItem(ctx, key, o)
}

func (c *Client) getItem(ctx context.Context, key []byte, o readOptions) (Item, error) {
	v, err := c.get(ctx, key, o)
	if err != nil {
		return Item{}, err
	}
	return item(bytes.Clone(key), v), nil
}

// item is a key with what it holds.
func item(key []byte, v backend.Value) Item {
	return Item{Key: key, Value: v.Bytes, Version: v.Version, TTL: v.TTL}
}

func (c *Client) get(ctx context.Context, key []byte, o readOptions) (backend.Value, error) {
	const name = "get"
	in, err := c.enter(ctx, name)
	if err != nil {
		return backend.Value{}, err
	}
	defer in.leave()
	if len(key) == 0 {
		return backend.Value{}, &Error{Op: name, Err: errEmptyKey}
	}
	v, err := c.backend.Get(ctx, key, o.at, (*backend.Timings)(o.timings))
	if err != nil {
		return backend.Value{}, failed(name, err)
	}
	return v, nil
}

var errEmptyKey = fmt.Errorf("%w: a key has at least one byte", ErrInvalid)

// GetMany reads all keys at one version. It returns one Lookup per key, in the same order. The
// server's limits for batches apply to the number of keys and to the bytes of the answer.
//
// Errors: ErrTooLarge beyond these limits. An absent key is not an error.
func (c *Client) GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error) {
	o, err := collectRead("get many", opts)
	if err != nil {
		return nil, err
	}
	return c.getMany(ctx, keys, o)
}

func (c *Client) getMany(ctx context.Context, keys [][]byte, o readOptions) ([]Lookup, error) {
	const name = "get many"
	in, err := c.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.leave()
	for _, key := range keys {
		if len(key) == 0 {
			return nil, &Error{Op: name, Err: errEmptyKey}
		}
	}
	lookups := withKeys(keys)
	err = c.backend.GetMany(ctx, keys, o.at, (*backend.Timings)(o.timings), func(i int, v backend.Value, found bool) {
		l := &lookups[i]
		l.Value, l.Version, l.TTL, l.Found = v.Bytes, v.Version, v.TTL, found
	})
	if err != nil {
		return nil, failed(name, err)
	}
	return lookups, nil
}

// withKeys returns lookups that have copies of the keys, in one piece of memory.
func withKeys(keys [][]byte) []Lookup {
	n := 0
	for _, key := range keys {
		n += len(key)
	}
	lookups, all := make([]Lookup, len(keys)), make([]byte, 0, n)
	for i, key := range keys {
		at := len(all)
		all = append(all, key...)
		lookups[i].Key = all[at:len(all):len(all)]
	}
	return lookups
}
