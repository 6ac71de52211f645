package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEverythingAtOnce runs the whole comparison with tiny stores and slots.
func TestEverythingAtOnce(t *testing.T) {
	p := shortPlan
	p.endurance, p.quiet = 20*time.Millisecond, 20*time.Millisecond
	for _, o := range []*contestOptions{&p.put, &p.mix, &p.get, &p.load, &p.long} {
		o.engines, o.rounds, o.keys, o.memory = []string{ours4, "pebble"}, 1, 1000, minMemoryMiB
		o.slot = 20 * time.Millisecond
	}
	p.scan.engines, p.scan.rounds, p.scan.shortScans = []string{ours4, "pebble"}, 1, 10
	p.scan.data.Keys, p.scan.memory = 1000, minMemoryMiB

	o := &contestOptions{dir: t.TempDir()}
	var stdout, stderr bytes.Buffer
	require.NoError(t, compareAll(t.Context(), o, &p, &stdout, &stderr), stderr.String())
	for _, row := range []string{putCell(1024, 256), mixCell("BALANCED", 4), loadCell, getCell("absent"), "scans of 50", "longest stall in any mix"} {
		assert.Regexp(t, `(?m)^ *`+row+` +(pebble|-) .* (yes|NO|-)$`, stdout.String())
	}
	assert.Contains(t, stdout.String(), "NOT MEASURED: slowest / median second", "no second was whole")
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}
