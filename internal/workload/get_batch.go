package workload

import (
	"context"
	"fmt"
)

// getBatch runs the gets of a worker that read several keys at a time.
type getBatch struct {
	w      *worker
	target BatchGetter
	asked  []askedKey
	keys   [][]byte                      // of asked
	visit  func(int, []byte, bool) error // judge, allocated once
	found  uint64                        // of the current batch
	ctx    context.Context               // of the current batch
	memory [][]byte                      // the bytes of keys
}

// askedKey is a result of readKey.
type askedKey struct {
	knownKey
	known bool
}

func newGetBatch(w *worker, target BatchGetter, size int) *getBatch {
	b := &getBatch{
		w: w, target: target,
		asked:  make([]askedKey, size),
		keys:   make([][]byte, size),
		memory: make([][]byte, size),
	}
	for i := range b.memory {
		b.memory[i] = make([]byte, w.cfg.keyBytes()+1)
	}
	b.visit = b.judge
	return b
}

// get runs one get. The latency includes checking the answers, as values are not kept;
// that time is part of the reported cost of the generator.
func (b *getBatch) get(ctx context.Context, intended int64) error {
	w := b.w
	var known uint64
	for i := range b.asked {
		key, ok := w.readKey()
		b.asked[i] = askedKey{key, ok}
		b.keys[i] = b.memory[i][:copy(b.memory[i], w.keyBytes(key.id, ok))]
		if ok && key.since != 0 {
			known++
		}
	}
	b.found, b.ctx = 0, ctx
	began := w.Now()
	if err := b.target.GetBatch(ctx, b.keys, b.visit); err != nil {
		return fmt.Errorf("get %d keys from %s on: %w", len(b.keys), b.keys[0], err)
	}
	w.tally.Record(int(kindGet), began, w.Now(), intended)
	w.tally.Extra[getKnown].Add(known)
	w.tally.Extra[getFound].Add(b.found)
	return nil
}

func (b *getBatch) judge(i int, value []byte, found bool) error {
	if found {
		b.found++
	}
	key := &b.asked[i]
	return b.w.judge(b.ctx, key.knownKey, key.known, b.keys[i], value, found)
}
