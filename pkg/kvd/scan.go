package kvd

import (
	"context"
	"iter"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Scan yields the items of a range in key order, or the reverse of it, all as of
// one version, not older than anything acknowledged before the loop began, unless
// AtVersion asks for an old one. If it cannot go on it yields one error, last.
// Leaving the loop early frees everything; items may be kept.
//
// The timeout of the client bounds the wait for each chunk of items, not the
// whole scan; a deadline of ctx bounds the whole. The server keeps a scan's
// version for a limited time only: a loop that stands still for longer ends with
// an error. A scan is tried again only before its first item.
func (c *Client) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	return c.scan(ctx, r, collectScan(opts))
}

func (c *Client) scan(ctx context.Context, r Range, o scanOptions) iter.Seq2[Item, error] {
	const name = "scan"
	s := backend.Scan{Range: backend.Range(r.clone()), Reverse: o.reverse, KeysOnly: o.keysOnly, Limit: o.limit, At: o.at}
	return func(yield func(Item, error) bool) {
		if err := c.enter(ctx, name, nil); err != nil {
			yield(Item{}, err)
			return
		}
		defer c.calls.leave()
		if err := c.backend.Scan(ctx, &s, func(i backend.Item) bool { return yield(Item(i), nil) }); err != nil {
			yield(Item{}, failed(name, err))
		}
	}
}
