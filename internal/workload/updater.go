package workload

import (
	"context"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// updater replaces records that it draws uniformly.
type updater struct {
	*recordWorker
	chooser uniform
}

func (b *Bench) newUpdater(index int, t *loadgen.Tally) *updater {
	w := &updater{recordWorker: b.newWorker(index, t)}
	w.chooser = uniform{rng: w.rng, keys: b.acknowledged()}
	return w
}

func (w *updater) step(ctx context.Context, intended int64) error {
	return w.update(ctx, snapshotPut, w.chooser.next(), intended)
}
