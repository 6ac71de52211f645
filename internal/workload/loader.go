package workload

import "math/rand/v2"

// Loader generates the entries of a store that is loaded by other means than a run,
// such as sorted batches. A run with Config.Present then verifies what it reads of
// them. Not safe for concurrent use.
type Loader struct {
	pool *valuePool
	rng  *rand.Rand
}

// NewLoader returns a Loader of values of this many bytes, at least MinValueBytes.
func NewLoader(valueBytes int, seed uint64) *Loader {
	return newLoader(newValuePool(valueBytes, 0, seed), seed)
}

func newLoader(pool *valuePool, seed uint64) *Loader {
	return &Loader{pool, rand.New(rand.NewPCG(seed, 0x6c6f6164))}
}

// Fill writes the key with this number, of KeyBytes bytes, and a value for it.
func (l *Loader) Fill(key, value []byte, id uint64) {
	putKey(key[:KeyBytes], id)
	l.pool.fill(value, id, 0, l.rng.Uint64())
}
