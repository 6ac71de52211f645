package history

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// maxReads bounds the keys that the transactions of one call read together.
const maxReads = 8

// transactions reads some keys and, if leased, a range, all from a snapshot under
// lease. It then commits one to three transactions, each of which depends on a part of
// the reads. Later ones have older reads.
func (c *Client) transactions(ctx context.Context, leased bool) error {
	var sizes []int // of the parts, in keys
	total := 0
	for range 1 + c.rng.IntN(3) {
		if n := min(1+c.rng.IntN(4), maxReads-total); n > 0 {
			sizes, total = append(sizes, n), total+n
		}
	}
	keys := c.pick(total)

	var view *Op
	var err error
	if leased {
		var snapshot kv.Snapshot
		if view, snapshot, err = c.lease(ctx, keys); view != nil {
			defer c.store.ReleaseSnapshot(snapshot.ID)
		}
	} else {
		view, err = c.snapshot(ctx, keys)
	}
	if view == nil || view.ReadVersion == 0 {
		return err
	}
	reads, scans := view.Reads, view.Scans
	for _, n := range sizes {
		o := Op{ReadVersion: view.ReadVersion, Reads: reads[:n], Scans: scans}
		if err := c.commit(ctx, o, leased); err != nil {
			return err
		}
		reads, scans = reads[n:], nil
	}
	return nil
}

// commit ends a transaction: it writes some of the keys that it has read, and others.
// Only reads from a leased snapshot may get conditions.
func (c *Client) commit(ctx context.Context, o Op, leased bool) error {
	t := kv.Transaction{ReadVersion: o.ReadVersion}
	for _, s := range o.Scans {
		t.Ranges = append(t.Ranges, kv.Range{Start: s.From.Bytes(), End: s.To.Bytes()})
		if c.rng.IntN(4) == 0 {
			// Delete a part of the scanned range, and perhaps put a key there.
			o.Writes = append(o.Writes, Write{Key: s.From, End: min(s.From+3, s.To)})
		}
		o.Writes = append(o.Writes, c.putOrDelete(s.From+Key(c.rng.IntN(int(s.To-s.From)))))
	}
	for _, r := range o.Reads {
		t.Keys = append(t.Keys, r.Key.Bytes())
		if c.rng.IntN(3) > 0 {
			o.Writes = append(o.Writes, c.putOrDelete(r.Key))
		}
	}
	if len(o.Writes) == 0 || c.rng.IntN(4) == 0 {
		o.Writes = append(o.Writes, c.putOrDelete(c.key()))
	}
	var guards []kv.Guard
	if leased && c.rng.IntN(4) == 0 {
		guards = append(guards, guardOf(o.Reads[0]))
	}
	refusal, err := c.settle(ctx, &o, func(ctx context.Context, options kv.WriteOptions) (answer, error) {
		t.Batch = batchOf(o.Writes, guards)
		version, err := c.store.Commit(ctx, &t, options)
		return answer{version: version}, err
	})
	switch {
	case err != nil:
		return err
	case errors.Is(refusal, kv.ErrConditionFailed):
		return fmt.Errorf("client %d: a guard that holds of what was read: %w, of %s", c.number, refusal, &o)
	case errors.Is(refusal, kv.ErrConflict):
		c.Tally.Conflicts++
	case errors.Is(refusal, kv.ErrVersionGone):
		c.Tally.TooOld++
	case refusal == nil:
		c.Tally.Transactions++
		c.transacted()
	}
	return nil
}
