package main

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// storeTarget is a store that all workers share: a client of a server, or a store in this
// process.
type storeTarget struct {
	stageSampler
	store kvd.Store
}

func openClient(o *targetOptions) (workload.Target, targetInfo, error) {
	client, err := kvd.Open(o.addr,
		kvd.WithDurability(kvd.Durability(o.level)), // the numbers are the same
		kvd.WithTimeout(0),                          // a stall is to be measured, not to end the run
	)
	if err != nil {
		return nil, targetInfo{}, err
	}
	info := targetInfo{Kind: kindServer, Address: o.addr, Durability: o.durability}
	target := &storeTarget{store: client}
	if o.admin == "" {
		return target, info, nil
	}
	metered, err := openMetered(target, o.admin)
	if err != nil {
		return nil, targetInfo{}, errors.Join(err, target.Close())
	}
	return metered, info, nil
}

func (t *storeTarget) Refused(err error) bool { return errors.Is(err, kvd.ErrOverloaded) }

func (t *storeTarget) Put(ctx context.Context, key, value []byte) error {
	if !t.sample() {
		return t.store.Put(ctx, key, value)
	}
	var timings kvd.Timings
	err := t.store.Put(ctx, key, value, kvd.Timed(&timings))
	if err == nil {
		t.add("put", &timings)
	}
	return err
}

func (t *storeTarget) Delete(ctx context.Context, key []byte) error {
	if !t.sample() {
		return t.store.Delete(ctx, key)
	}
	var timings kvd.Timings
	err := t.store.Delete(ctx, key, kvd.Timed(&timings))
	if err == nil {
		t.add("delete", &timings)
	}
	return err
}

func (t *storeTarget) Get(ctx context.Context, key, _ []byte) ([]byte, bool, error) {
	if !t.sample() {
		return found(t.store.Get(ctx, key))
	}
	var timings kvd.Timings
	value, ok, err := found(t.store.Get(ctx, key, kvd.Timed(&timings)))
	if err == nil {
		t.add("get", &timings)
	}
	return value, ok, err
}

func (t *storeTarget) holdsKeys(ctx context.Context) (bool, error) {
	for _, err := range t.store.Scan(ctx, kvd.All(), kvd.KeysOnly(), kvd.Limit(1)) {
		return err == nil, err
	}
	return false, nil
}

func (t *storeTarget) Close() error { return t.store.Close() }
