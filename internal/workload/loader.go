package workload

import "math/rand/v2"

// Loader makes the entries of a store that is loaded by other means than a run,
// such as sorted batches: a run with Config.Present then verifies what it reads of
// them. It belongs to one goroutine.
type Loader struct {
	pool *valuePool
	rng  *rand.Rand
}

// NewLoader returns one for values of so many bytes, at least MinValueBytes.
func NewLoader(valueBytes int, seed uint64) *Loader {
	return &Loader{newValuePool(valueBytes, seed), rand.New(rand.NewPCG(seed, 0x6c6f6164))}
}

// Fill writes the key with this number, of KeyBytes, and a value for it.
func (l *Loader) Fill(key, value []byte, id uint64) {
	putKey(key, id)
	l.pool.fill(value, id, 0, l.rng.Uint64())
}
