package workload

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The cost of the same operations is measured once, unless it cannot be measured.
func TestTheCostOfTheSameOperationsIsMeasuredOnce(t *testing.T) {
	var p preparations
	calls := 0
	measure := func(all time.Duration) func() (generatorCost, error) {
		return func() (generatorCost, error) { calls++; return generatorCost{all: all}, nil }
	}
	cost := func(cfg Config, all time.Duration) generatorCost {
		c, err := p.cost(&cfg, measure(all))
		require.NoError(t, err)
		return c
	}
	cfg := testConfig()
	assert.Zero(t, cost(cfg, 0), "the clock stands still")
	assert.EqualValues(t, 5, cost(cfg, 5).all)
	again := cfg
	again.Workers, again.Seed, again.Operations, again.Duration, again.OpsPerSecond = 9, 9, 9, 0, 9
	assert.EqualValues(t, 5, cost(again, 6).all)
	for name, change := range map[string]func(*Config){
		"mix":          func(c *Config) { c.Mix = Mixes[0] },
		"keys":         func(c *Config) { c.Keys++ },
		"present":      func(c *Config) { c.Present = 1 },
		"values":       func(c *Config) { c.ValueBytes++ },
		"sizes":        func(c *Config) { c.Sizes = &ValueSizes{Least: 20, Most: 64} },
		"get batch":    func(c *Config) { c.GetBatch = 2 },
		"find rate":    func(c *Config) { c.FindRate = 0.25 },
		"theta":        func(c *Config) { c.Theta = 0.5 },
		"distribution": func(c *Config) { c.Distribution = Zipfian },
		"reused":       func(c *Config) { c.Reused = true },
		"unverified":   func(c *Config) { c.Unverified = true },
		"deletes":      func(c *Config) { c.CheckDeletes = true },
	} {
		other := cfg
		change(&other)
		assert.EqualValues(t, 7, cost(other, 7).all, name)
	}
	assert.Equal(t, 2+12, calls)
	_, err := new(preparations).cost(&cfg, func() (generatorCost, error) { return generatorCost{}, errors.ErrUnsupported })
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestRunsWithTheSameValuesShareTheirPool(t *testing.T) {
	var p preparations
	pool := p.poolFor(100, 0, 1)
	assert.Same(t, pool, p.poolFor(100, 0, 1))
	for _, other := range []*valuePool{p.poolFor(101, 0, 1), p.poolFor(100, 0.5, 1), p.poolFor(100, 0, 2)} {
		assert.NotSame(t, pool, other)
	}
	assert.Equal(t, pool, p.poolFor(100, 0, 1))
}
