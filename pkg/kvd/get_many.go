package kvd

import (
	"bytes"
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// fitFrame reports whether keys may be read by one frame.
func (c *Client) fitFrame(keys [][]byte) bool {
	b := &c.config.batching
	if b.Disabled || len(keys) == 0 || len(keys) > frame.MaxOps {
		return false
	}
	bytes := 0
	for _, key := range keys {
		bytes += len(key)
	}
	return bytes <= b.MaxBytes
}

// getTogether reads keys at one version, by a frame of their own.
func (c *Client) getTogether(ctx context.Context, name string, keys [][]byte, o readOptions) ([]Lookup, error) {
	w := startWatch(o.timings)
	if !c.calls.enter() {
		return nil, &Error{Op: name, Err: ErrClosed}
	}
	defer c.calls.leave()
	if err := ctx.Err(); err != nil {
		return nil, &Error{Op: name, Err: err}
	}
	tries := c.attempts(ctx, name)
	tries.watch = w
	for {
		lookups, f := c.tryTogether(ctx, keys, &o, &tries)
		if f == nil {
			tries.succeeded()
			return lookups, nil
		}
		if err := tries.again(ctx, f); err != nil {
			return nil, err
		}
	}
}

func (c *Client) tryTogether(ctx context.Context, keys [][]byte, o *readOptions, tries *attempts) ([]Lookup, *fault) {
	conn := c.pickFor(together)
	op := frame.Op{Kind: frame.Get, AtVersion: o.at, Epoch: o.epoch}
	patience := c.setTimeout(&op, tries)
	ctx, cancel := tries.within(ctx)
	defer cancel()
	seats, f := conn.boardTogether(keys, op, patience, tries.watch.depart())
	if f != nil {
		tries.bound(time.Now())
		return nil, f
	}
	begun := seats[0].flight.born
	lookups := make([]Lookup, len(keys))
	for i := range seats {
		a, fault := conn.await(ctx, &seats[i], &op, tries.deadline.IsZero())
		switch {
		case fault == nil:
			lookups[i] = Lookup{Item: a.item, Found: true}
		case fault.reason != kvdpb.ReasonKeyNotFound && f == nil:
			f = fault
		}
		lookups[i].Key = bytes.Clone(keys[i])
	}
	if f != nil {
		tries.bound(begun)
		return nil, f
	}
	return lookups, nil
}

// boardTogether makes a flight of the reads of one call. Without a version to read
// at, which would be the same for all anyway, the server chooses one.
func (c *conn) boardTogether(keys [][]byte, op frame.Op, patience time.Duration, t *trip) ([]seat, *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.reachLocked(); f != nil {
		return nil, f
	}
	f := newFlight(c, together)
	f.oneVersion = op.AtVersion == 0
	seats := make([]seat, len(keys))
	for i, key := range keys {
		op.Key = key
		seats[i] = f.board(&op, patience)
	}
	seats[0].time(t)
	l := &c.mu.lanes[together]
	l.sealed = append(l.sealed, f)
	c.load(together).Add(int64(len(keys)))
	c.watchLocked()
	if k := c.mu.link; k != nil {
		k.wakeForLocked(l)
	}
	return seats, nil
}
