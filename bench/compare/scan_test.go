package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/judge"
)

// TestMain lets the test binary be its own worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

func testOptions(t *testing.T) *scanOptions {
	return &scanOptions{
		data:       dataset{Keys: 5000, ValueBytes: 100, Order: orderRandom},
		engines:    engineNames(),
		rounds:     2,
		shortScans: 50,
		memory:     minMemoryMiB,
		dir:        t.TempDir(),
	}
}

func TestScanComparesEveryEngine(t *testing.T) {
	o := testOptions(t)
	require.NoError(t, o.validate())
	var stdout, stderr bytes.Buffer
	require.NoError(t, compareScans(t.Context(), o, &stdout, &stderr))
	for _, e := range engines {
		assert.Contains(t, stderr.String(), e.name+" loaded 5000 entries")
		assert.Contains(t, stdout.String(), e.name)
	}
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left, "temporary files stay")
}

func TestStoresAreScannedAsTheyAreAfterTheLoad(t *testing.T) {
	o := testOptions(t)
	o.engines, o.loose = []string{ours, "pebble"}, true
	require.NoError(t, o.validate())
	var stdout, stderr bytes.Buffer
	require.NoError(t, compareScans(t.Context(), o, &stdout, &stderr))
	assert.Regexp(t, `(?m)^ *engine +version +forward$`, stdout.String())
	assert.Regexp(t, `(?m)^ *pebble +[0-9.]+ \([0-9.]+-[0-9.]+\)$`, stdout.String())
}

func TestScanReportsAWorkerThatFails(t *testing.T) {
	o := testOptions(t)
	o.engines = []string{ours}
	o.memory = -1 // kvd rejects it
	var stdout, stderr bytes.Buffer
	require.ErrorContains(t, compareScans(t.Context(), o, &stdout, &stderr), "kvd: ")
	assert.Empty(t, stdout.String())
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(o *scanOptions){
		"no keys":        func(o *scanOptions) { o.data.Keys = 0 },
		"no value":       func(o *scanOptions) { o.data.ValueBytes = 1 },
		"large value":    func(o *scanOptions) { o.data.ValueBytes = maxValueBytes + 1 },
		"order":          func(o *scanOptions) { o.data.Order = "odd" },
		"no engine":      func(o *scanOptions) { o.engines = nil },
		"unknown engine": func(o *scanOptions) { o.engines = []string{"kvd", "oracle"} },
		"no round":       func(o *scanOptions) { o.rounds = 0 },
		"no short scan":  func(o *scanOptions) { o.shortScans = 0 },
		"little memory":  func(o *scanOptions) { o.memory = minMemoryMiB - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			spoil(o)
			require.Error(t, o.validate())
		})
	}
}

// TestRatiosCompareWithinRounds: a machine that becomes ten times slower after the
// first round changes nothing.
func TestRatiosCompareWithinRounds(t *testing.T) {
	o := &scanOptions{data: dataset{Keys: 1_000_000, ValueBytes: 100, Order: orderSorted}, rounds: 2, shortScans: 1000}
	processes := []*engineWorker{{name: "pebble"}, {name: ours}}
	took := func(factor time.Duration) round {
		r := round{}
		for _, s := range o.shapes() {
			r[s] = []result{
				{Elapsed: factor * 100 * time.Millisecond, CPU: 90 * time.Millisecond, Entries: 1_000_000, Memory: memoryUse{10 << 20, 12 << 20}},
				{Elapsed: factor * 200 * time.Millisecond, CPU: 180 * time.Millisecond, Entries: 1_000_000, Memory: memoryUse{20 << 20, 25 << 20}},
			}
		}
		return r
	}
	first := took(1000) // not measured
	first[shapeForward][1].Memory = memoryUse{30 << 20, 100 << 20}
	var out bytes.Buffer
	require.NoError(t, printScans(&out, o, "", processes, []round{first, took(1), took(10)}))
	assert.Regexp(t, `pebble( +0\.50 \(0\.50-0\.50\)){4}`, out.String())
	assert.Regexp(t, `kvd( +2\.75){4}`, out.String(), "median of 5 and 0.5 million entries")
	assert.Regexp(t, `kvd( +180\.0 \(180\.0-180\.0\)){4}`, out.String())
	assert.Regexp(t, `kvd +30 +\+70 +20 +\+5 \(at most \+5\)`, out.String())
}

func TestSpread(t *testing.T) {
	assert.Equal(t, judge.Spread{Median: 3, Least: 1, Most: 9}, judge.NewSpread([]float64{9, 1, 3}))
	assert.Equal(t, judge.Spread{Median: 2.5, Least: 1, Most: 9}, judge.NewSpread([]float64{9, 1, 3, 2}))
	assert.Equal(t, judge.Spread{Median: 7, Least: 7, Most: 7}, judge.NewSpread([]float64{7}))
}
