package engine

import (
	"context"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
)

// makeDurable returns once those of the writes that an earlier attempt had applied have
// the durability that they ask for now, or an error: see commit.AwaitDurable.
func (to *writers) makeDurable(ctx context.Context, writes []*kv.Write) {
	level := kv.DurabilityDefault
	for _, w := range writes {
		if w.Deduplicated && w.Err == nil {
			level = max(level, w.Durability)
		}
	}
	if level == kv.DurabilityDefault {
		return
	}
	err := commit.AwaitDurable(ctx, to.log, level)
	if err == nil {
		return
	}
	for _, w := range writes {
		if w.Deduplicated && w.Err == nil {
			w.Version, w.Deduplicated, w.Err = 0, false, err
		}
	}
}
