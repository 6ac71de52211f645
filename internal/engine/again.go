package engine

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// makeDurable returns once those of the writes that an earlier attempt had applied have
// the durability that they ask for now, or an error: see durableAgain.
func (e *Engine) makeDurable(ctx context.Context, writes []*kv.Write) {
	level := kv.DurabilityDefault
	for _, w := range writes {
		if w.Deduplicated && w.Err == nil {
			level = max(level, w.Durability)
		}
	}
	if level == kv.DurabilityDefault {
		return
	}
	err := e.durableAgain(ctx, level)
	if err == nil {
		return
	}
	for _, w := range writes {
		if w.Deduplicated && w.Err == nil {
			w.Version, w.Deduplicated, w.Err = 0, false, err
		}
	}
}

// durableAgain returns once everything in the log has the durability given, and so has the
// first attempt at a write that was sent again: that attempt may have asked for less, and
// its durability is not remembered. The error is kv.ErrUncertain.
//
// Cost: commonly nothing, since the log has that durability already; otherwise at most the
// sync in progress and one more.
func (e *Engine) durableAgain(ctx context.Context, level kv.Durability) error {
	if level == kv.DurabilityMemory {
		return nil
	}
	end := e.log.End()
	if level == kv.DurabilityBuffered {
		e.log.Flush()
		if e.log.Written() >= end {
			return nil
		}
	}
	if err := e.log.WaitSynced(ctx, end); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrUncertain, err)
	}
	return nil
}
