package client

import (
	"context"
	"errors"
	"math"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// Update reads and sets a key in a transaction.
func (k kvdClient) Update(ctx context.Context, key, value []byte, check func(old []byte) error) error {
	return k.c.Update(ctx, func(tx *kvd.Txn) error {
		old, err := tx.Get(ctx, key)
		if err != nil {
			return err
		}
		if err := check(old); err != nil {
			return err
		}
		return tx.Put(ctx, key, value)
	}, kvd.MaxAttempts(math.MaxInt))
}

func (k kvdClient) GetVersion(ctx context.Context, key []byte) ([]byte, uint64, error) {
	item, err := k.c.GetItem(ctx, key)
	return item.Value, item.Version, err
}

func (k kvdClient) SetIfVersion(ctx context.Context, key, value []byte, version uint64) (uint64, error) {
	written, err := k.c.PutItem(ctx, key, value, kvd.IfVersion(version))
	return written.Version, err
}

func (k kvdClient) SetIfValue(ctx context.Context, key, value, old []byte) error {
	return k.c.Put(ctx, key, value, kvd.IfValue(old))
}

// kvdView takes a snapshot for each Get.
type kvdView struct{ kvdClient }

func openKVDView(o Options) (Client, error) {
	c, err := kvd.Open(o.Address, kvdOptions(o)...)
	if err != nil {
		return nil, err
	}
	return kvdView{kvdClient{c}}, nil
}

func (k kvdView) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = k.c.View(ctx, func(s *kvd.Snapshot) (err error) {
		value, err = s.Get(ctx, key)
		return err
	})
	return value, err
}

// kvdSnapshot makes all Gets of one snapshot.
type kvdSnapshot struct {
	kvdClient
	at *kvd.Snapshot
}

func openKVDSnapshot(o Options) (Client, error) {
	c, err := kvd.Open(o.Address, kvdOptions(o)...)
	if err != nil {
		return nil, err
	}
	at, err := c.Snapshot(context.Background())
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return kvdSnapshot{kvdClient{c}, at}, nil
}

func (k kvdSnapshot) Get(ctx context.Context, key []byte) ([]byte, error) { return k.at.Get(ctx, key) }
func (k kvdSnapshot) Close() error                                        { return errors.Join(k.at.Close(), k.c.Close()) }
