package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
)

func TestValueSizesAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]struct {
		least, most int
		mean        float64
	}{
		"1024":           {1024, 1024, 1024},
		"100..4000":      {100, 4000, 2050},
		"100:90,4000:10": {100, 4000, 490},
		"30:1":           {30, 30, 30},
	} {
		s, err := ParseValueSizes(text)
		require.NoError(t, err)
		assert.Equal(t, text, s.String())
		least, most := s.Bounds()
		assert.Equal(t, want.least, least, text)
		assert.Equal(t, want.most, most, text)
		assert.InDelta(t, want.mean, s.Mean(), 1e-9, text)
	}
	for _, bad := range []string{"", "x", "1.5", "10..", "..10", "20..10", "10:", "10:0", ":5", "10:1,", "10:-1", "10:1,20"} {
		_, err := ParseValueSizes(bad)
		assert.ErrorContains(t, err, "want a number of bytes such as 1024", bad)
	}
	_, err := ParseValueSizes(strings.Repeat("1:1,", MaxWeightedSizes) + "1:1")
	assert.ErrorContains(t, err, "at most 16 sizes")
}

func TestValueSizesAreDrawnInTheirProportions(t *testing.T) {
	testsize.OneGoroutine(t)
	const n = 100_000
	s, err := ParseValueSizes("100..149")
	require.NoError(t, err)
	rng, counts := testRand(), make([]int, 50)
	for range n {
		counts[s.draw(rng)-100]++
	}
	requireFits(t, counts, func(int) float64 { return 1.0 / 50 })

	s, err = ParseValueSizes("100:70,200:25,300:5")
	require.NoError(t, err)
	counts = make([]int, 3)
	for range n {
		counts[s.draw(rng)/100-1]++
	}
	requireFits(t, counts, func(i int) float64 { return []float64{0.70, 0.25, 0.05}[i] })
}

func TestOneValueSizeDrawsNothing(t *testing.T) {
	a, b := testRand(), testRand()
	assert.Equal(t, 77, Fixed(77).draw(a))
	assert.Equal(t, b.Uint64(), a.Uint64(), "runs with fixed sizes draw the operations that they always have")
}

// TestARunPutsKeysAndValuesOfItsSizes also sends the Config as JSON, as between processes.
func TestARunPutsKeysAndValuesOfItsSizes(t *testing.T) {
	cfg := testConfig()
	cfg.KeyBytes, cfg.Compressible = 40, 0.5
	sizes, err := ParseValueSizes("30:1,60:1")
	require.NoError(t, err)
	cfg.Sizes, cfg.ValueBytes = sizes, 60
	data, err := json.Marshal(cfg)
	require.NoError(t, err)
	var sent Config
	require.NoError(t, json.Unmarshal(data, &sent))
	require.NoError(t, sent.Validate())

	target := newMapTarget()
	_, err = runSteps(t, sent, target, 5000)
	require.NoError(t, err)
	lengths := make(map[int]int)
	for key, value := range target.values {
		require.Len(t, key, 40)
		lengths[len(value)]++
	}
	assert.Len(t, lengths, 2)
	assert.InDelta(t, 1, float64(lengths[30])/float64(lengths[60]), 0.2, "the seed is fixed")

	again := newMapTarget()
	_, err = runSteps(t, cfg, again, 5000)
	require.NoError(t, err)
	assert.Equal(t, target.values, again.values, "equal seeds put equal values")
	s := newSettings(&cfg)
	assert.Equal(t, 40, s.KeyBytes)
	assert.Equal(t, "30:1,60:1", s.ValueSizes)
	assert.Zero(t, s.Theta, "of a uniform distribution")
}

func TestSizesThatCannotBeAreRefused(t *testing.T) {
	for says, change := range map[string]func(*Config){
		"values of 10 bytes":             func(c *Config) { c.Sizes, c.ValueBytes = &ValueSizes{Least: 10, Most: 30}, 30 },
		"the largest has 31":             func(c *Config) { c.Sizes, c.ValueBytes = &ValueSizes{Least: 20, Most: 30}, 31 },
		"keys of 15 bytes":               func(c *Config) { c.KeyBytes = 15 },
		"keys of 4096 bytes":             func(c *Config) { c.KeyBytes = 4096 },
		"theta of -1":                    func(c *Config) { c.Theta = -1 },
		"theta of 11":                    func(c *Config) { c.Theta = 11 },
		"a compressible share of 1.1":    func(c *Config) { c.Compressible = 1.1 },
		"a compressible share of -0.001": func(c *Config) { c.Compressible = -0.001 },
	} {
		cfg := testConfig()
		change(&cfg)
		assert.ErrorContains(t, cfg.Validate(), says)
	}
}
