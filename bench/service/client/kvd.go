package client

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd"
)

type kvdClient struct{ c *kvd.Client }

func openKVD(o Options) (Client, error) {
	c, err := kvd.Open(o.Address, kvdOptions(o)...)
	if err != nil {
		return nil, err
	}
	return kvdClient{c}, nil
}

func openKVDgRPC(o Options) (Client, error) {
	c, err := kvd.Open(o.Address, append(kvdOptions(o), kvd.WithoutRawFrames())...)
	if err != nil {
		return nil, err
	}
	return kvdClient{c}, nil
}

func kvdOptions(o Options) []kvd.Option {
	durability := kvd.Buffered
	if o.Sync {
		durability = kvd.Sync
	}
	opts := []kvd.Option{kvd.WithDurability(durability)}
	if o.Conns > 0 {
		opts = append(opts, kvd.WithConns(o.Conns))
	}
	if o.Timeout > 0 {
		opts = append(opts, kvd.WithTimeout(o.Timeout))
	}
	return opts
}

func (k kvdClient) Get(ctx context.Context, key []byte) ([]byte, error) { return k.c.Get(ctx, key) }
func (k kvdClient) Set(ctx context.Context, key, value []byte) error    { return k.c.Put(ctx, key, value) }
func (k kvdClient) Close() error                                        { return k.c.Close() }

func (k kvdClient) GetMany(ctx context.Context, keys [][]byte, visit func(i int, value []byte) error) error {
	lookups, err := k.c.GetMany(ctx, keys)
	if err != nil {
		return err
	}
	for i := range lookups {
		if !lookups[i].Found {
			return fmt.Errorf("key %q: %w", keys[i], kvd.ErrNotFound)
		}
		if err := visit(i, lookups[i].Value); err != nil {
			return err
		}
	}
	return nil
}
