package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Fill puts all keys once, with this many callers.
func Fill(ctx context.Context, t Target, keys uint64, valueBytes, callers int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	values := NewValues(valueBytes)
	var next atomic.Uint64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			var key [KeyBytes]byte
			value := make([]byte, valueBytes)
			for id := next.Add(1) - 1; id < keys && ctx.Err() == nil; id = next.Add(1) - 1 {
				PutKey(key[:], id)
				values.Fill(value, id, 0)
				if err := t.Set(ctx, key[:], value); err != nil {
					cancel(fmt.Errorf("fill: %w", err))
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}
