package main

import (
	"context"

	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// clientTarget is a server, reached by one client that all workers share.
type clientTarget struct {
	client *kvd.Client
}

func openClient(o *targetOptions) (workload.Target, targetInfo, error) {
	client, err := kvd.Open(o.addr,
		kvd.WithDurability(kvd.Durability(o.level)), // the numbers are the same
		kvd.WithTimeout(0),                          // a stall is to be measured, not to end the run
	)
	if err != nil {
		return nil, targetInfo{}, err
	}
	return &clientTarget{client}, targetInfo{Kind: "server", Address: o.addr, Durability: o.durability}, nil
}

func (t *clientTarget) Put(ctx context.Context, key, value []byte) error {
	return t.client.Put(ctx, key, value)
}

func (t *clientTarget) Delete(ctx context.Context, key []byte) error {
	return t.client.Delete(ctx, key)
}

func (t *clientTarget) Get(ctx context.Context, key, _ []byte) ([]byte, bool, error) {
	return found(t.client.Get(ctx, key))
}

func (t *clientTarget) holdsKeys(ctx context.Context) (bool, error) {
	for _, err := range t.client.Scan(ctx, kvd.All(), kvd.KeysOnly(), kvd.Limit(1)) {
		return err == nil, err
	}
	return false, nil
}

func (t *clientTarget) Close() error { return t.client.Close() }
