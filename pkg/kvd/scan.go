package kvd

import (
	"context"
	"iter"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Scan yields the items of a range in key order, or in reverse order with Reverse. All items
// are of one version, which includes every write acknowledged before the loop began; AtVersion
// chooses an older one. A failure is yielded once, as the last pair. Leaving the loop early
// frees all resources. A value is never nil, except with KeysOnly. The caller owns the items, except
// with Borrow.
//
// The client's timeout bounds the wait for each chunk of items; a deadline of ctx bounds the
// whole loop. The server keeps the version of a scan for a limited time, so a loop that pauses
// longer ends with ErrVersionGone. The client retries a scan only before its first item.
func (c *Client) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	o, err := collectScan(opts)
	if err != nil {
		return failedScan(err)
	}
	return c.scan(ctx, r, o)
}

func (c *Client) scan(ctx context.Context, r Range, o scanOptions) iter.Seq2[Item, error] {
	const name = "scan"
	s := backend.Scan{Range: backend.Range(r.clone()), Reverse: o.reverse, KeysOnly: o.keysOnly, Borrow: o.borrow, Limit: o.limit, At: o.at}
	return func(yield func(Item, error) bool) {
		in, err := c.enter(ctx, name)
		if err != nil {
			yield(Item{}, err)
			return
		}
		defer in.leave()
		err = c.backend.Scan(ctx, &s, func(i backend.Item) bool {
			if i.Value == nil && !s.KeysOnly {
				i.Value = []byte{}
			}
			return yield(Item(i), nil)
		})
		if err != nil {
			yield(Item{}, failed(name, err))
		}
	}
}
