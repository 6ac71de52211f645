package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEverythingAtOnce runs the whole comparison with tiny stores and slots. If a busy
// machine did nothing in a slot, which then has no row, it runs again with longer ones.
func TestEverythingAtOnce(t *testing.T) {
	rows := []string{
		putCell(1024, 256), mixCell("BALANCED", 4), loadCell, singleLoadCell, getCell("absent"),
		"transactions buffered", "transactions sync", scanMixCell, coldCell(coldUniform), coldCell(coldZipf),
		"scans of 50", "scans of 50, 2 threads", "scan of everything, not settled", "longest stall in any mix",
	}
	for slot := 20 * time.Millisecond; ; slot *= 2 {
		text := compareAllBriefly(t, slot)
		missing := slices.DeleteFunc(slices.Clone(rows), func(row string) bool {
			return regexp.MustCompile(`(?m)^ *` + regexp.QuoteMeta(row) + ` +(pebble|-) .* (yes|NO|-)$`).MatchString(text)
		})
		assert.Contains(t, text, "NOT MEASURED: slowest / median second", "it is a long run")
		assert.Contains(t, text, "NOT MEASURED: GET_HEAVY, twice the threads, worst, kvd-16")
		if len(missing) == 0 {
			return
		}
		t.Logf("no rows %q with slots of %v: again", missing, slot)
	}
}

// compareAllBriefly returns the output of the whole comparison.
func compareAllBriefly(t *testing.T, slot time.Duration) string {
	t.Helper()
	p := shortPlan
	for _, o := range []*contestOptions{&p.put, &p.mix, &p.get, &p.load, &p.single, &p.txn, &p.scanMix, &p.coldUniform, &p.coldZipf} {
		o.engines, o.rounds, o.keys, o.memory, o.slot = []string{ours, "pebble"}, 1, 1000, minMemoryMiB, slot
	}
	for _, o := range []*scanOptions{&p.scan, &p.looseScan} {
		o.engines, o.rounds, o.shortScans = []string{ours, "pebble"}, 1, 10
		o.data.Keys, o.memory = 1000, minMemoryMiB
	}
	o := &contestOptions{dir: t.TempDir()}
	var stdout, stderr bytes.Buffer
	require.NoError(t, compareAll(t.Context(), o, &p, &stdout, &stderr), stderr.String())
	left, err := os.ReadDir(o.dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	return stdout.String()
}
