package workload

import (
	"sync"
	"time"
)

// prepared is what the runs of this process need before they begin. The runs of an experiment
// differ in their stores and their workers; most of them have the same values and operations.
var prepared preparations

type preparations struct {
	mu     sync.Mutex
	costs  map[operationsKey]generatorCost
	pool   *valuePool // of the newest run
	poolOf poolKey
}

// generatorCost is the generator's time for one operation, and the part of it that checks the
// answers.
type generatorCost struct{ all, verification time.Duration }

// operationsKey is what the cost of an operation depends on.
type operationsKey struct {
	mix                              Mix
	keys, present                    uint64
	valueBytes, getBatch             int
	findRate, theta                  float64
	distribution                     Distribution
	reused, unverified, checkDeletes bool
}

// poolKey is what a pool of values depends on.
type poolKey struct {
	valueBytes   int
	compressible float64
	seed         uint64
}

// poolFor returns a pool for values of this many bytes: see newValuePool.
func (p *preparations) poolFor(valueBytes int, compressible float64, seed uint64) *valuePool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := (poolKey{valueBytes, compressible, seed}); p.pool == nil || p.poolOf != of {
		p.pool, p.poolOf = newValuePool(valueBytes, compressible, seed), of
	}
	return p.pool
}

// cost returns what was measured for the operations of a run, or measures it. A cost of 0 is that
// of a clock that stands still; it is not kept.
func (p *preparations) cost(cfg *Config, measure func() (generatorCost, error)) (generatorCost, error) {
	of := cfg.operationsKey()
	p.mu.Lock()
	cost, ok := p.costs[of]
	p.mu.Unlock()
	if ok {
		return cost, nil
	}
	cost, err := measure()
	if err != nil || cost.all == 0 {
		return cost, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.costs == nil {
		p.costs = make(map[operationsKey]generatorCost)
	}
	p.costs[of] = cost
	return cost, nil
}

// operationsKey returns what the cost of the operations depends on. That of values is their mean
// length: see measureCost.
func (c *Config) operationsKey() operationsKey {
	return operationsKey{
		mix: c.Mix, keys: c.Keys, present: c.Present, valueBytes: int(c.sizes().Mean()), getBatch: c.GetBatch,
		findRate: c.FindRate, theta: c.Theta, distribution: c.Distribution,
		reused: c.Reused, unverified: c.Unverified, checkDeletes: c.CheckDeletes,
	}
}
