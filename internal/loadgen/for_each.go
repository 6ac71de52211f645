package loadgen

import (
	"context"
	"sync/atomic"
	"time"
)

// ForEach calls do once for each number below total, from several goroutines: worker w
// gets w, w+workers and so on, in that order. It calls told with the progress at the
// beginning, every second and at the end, unless told is nil. It ends with the first error of do, or with
// that of ctx.
func ForEach(ctx context.Context, workers int, total uint64, told func(done, total uint64), do func(ctx context.Context, worker int, n uint64) error) error {
	c := newCrew()
	defer c.cancelOps()
	var ended atomic.Uint64
	tell := func() {
		if told != nil {
			told(ended.Load(), total)
		}
	}
	tell()
	done := c.start(workers, func(worker int) error {
		for n := uint64(worker); n < total && !c.stopping.Load(); n += uint64(workers) {
			if err := do(c.opCtx, worker, n); err != nil {
				return err
			}
			ended.Add(1)
		}
		return nil
	})
	for c.sleep(ctx, time.Second, done) {
		tell()
	}
	c.finish(done)
	tell()
	if err := c.err(); err != nil {
		return err
	}
	return ctx.Err()
}
