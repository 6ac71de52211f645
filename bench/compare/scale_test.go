package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/testwait"
)

func testScaleOptions(t *testing.T) *scaleOptions {
	return &scaleOptions{
		contestOptions: contestOptions{dir: t.TempDir(), slot: 50 * time.Millisecond, memory: 64, out: filepath.Join(t.TempDir(), "scale.jsonl")},
		sizes:          []int{2000, 20_000}, sizePartitions: 4, partitions: []int{1, 4}, partitionKeys: 2000,
		valueBytes: 100, threads: 2, small: minMemoryMiB,
	}
}

// scaled measures and returns what was printed as result and on the way.
func scaled(t *testing.T, o *scaleOptions) (stdout, stderr string) {
	t.Helper()
	require.NoError(t, o.validate())
	var out, err bytes.Buffer
	require.NoError(t, measureScale(t.Context(), o, &out, &err), err.String())
	left, e := os.ReadDir(o.dir)
	require.NoError(t, e)
	assert.Empty(t, left, "temporary files stay")
	return out.String(), err.String()
}

func TestScaleMeasuresEachStoreOnce(t *testing.T) {
	o := testScaleOptions(t)
	stdout, _ := scaled(t, o)
	assert.Equal(t, 3, strings.Count(stdout, " 2000 4 ")+strings.Count(strings.Join(strings.Fields(stdout), " "), " 20000 4 "),
		"in three tables:\n%s", stdout)
	assert.NotContains(t, stdout, "NaN")
	assert.NotContains(t, stdout, "Inf")

	log, err := openScaleLog(o.out, o.settings())
	require.NoError(t, err)
	require.NoError(t, log.close())
	require.Len(t, log.results, 3)
	for i, c := range o.cases() {
		r := &log.results[i]
		assert.Equal(t, c, r.Case)
		assert.Equal(t, c.Keys, r.Scan.Entries)
		assert.Positive(t, r.Load.Inside.TableBytes)
		assert.Less(t, r.Load.Inside.TableBytes, r.Absent.DiskBytes)
		assert.Positive(t, r.Get.Summary.Found.Get) // a key that is not found ends the run
		assert.Zero(t, r.Absent.Summary.Found.Get)
		assert.Positive(t, r.ColdGet.Summary.Found.Get, "opened again")
		assert.Positive(t, r.Cold.Open)
		assert.InDelta(t, 3*c.Keys, r.Cold.Held.Heap, 200<<10, "2 to 3 bytes a key, and what any store holds")
		assert.Positive(t, r.ColdGet.Read.Blocks)
		assert.LessOrEqual(t, r.ColdGet.Read.Blocks, int64(r.ColdGet.Summary.Ops)+100)
		assert.Positive(t, r.ColdGet.Read.Calls)
		assert.NotZero(t, r.Put.Summary.Put.Count)
		assert.Positive(t, r.After.Open)
	}
}

func TestScaleGoesOnWhereItStopped(t *testing.T) {
	o := testScaleOptions(t)
	o.sizes, o.partitionKeys = o.sizes[:1], 0
	first, _ := scaled(t, o)
	text, err := os.ReadFile(o.out)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.out, append(text, text[:100]...), 0o600)) // killed while it wrote
	o.partitions, o.partitionKeys = []int{1}, 2000
	second, progress := scaled(t, o)
	assert.Contains(t, progress, "2000 keys, 4 partitions: measured by an earlier run")
	assert.NotContains(t, progress, "2000 keys, 1 partitions: measured by an earlier run")
	table := func(s string) string { return s[strings.Index(s, "keys  partitions"):] }
	assert.Contains(t, strings.Join(strings.Fields(table(second)), " "), strings.Join(strings.Fields(table(first)), " "))
	_, progress = scaled(t, o)
	assert.Equal(t, 2, strings.Count(progress, "measured by an earlier run"))

	o.slot *= 2
	require.ErrorContains(t, measureScale(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{}), "name another file")
	require.NoError(t, os.WriteFile(o.out, []byte("a letter\n"), 0o600))
	require.ErrorContains(t, measureScale(t.Context(), o, &bytes.Buffer{}, &bytes.Buffer{}), "no file of results")
	text, err = os.ReadFile(o.out)
	require.NoError(t, err)
	assert.Equal(t, "a letter\n", string(text))
}

func TestScalesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(o *scaleOptions){
		"no store":           func(o *scaleOptions) { o.sizePartitions, o.partitionKeys = 0, 0 },
		"no keys":            func(o *scaleOptions) { o.sizes = []int{0} },
		"negative partition": func(o *scaleOptions) { o.partitions = []int{-1} },
		"no thread":          func(o *scaleOptions) { o.threads = 0 },
		"tiny values":        func(o *scaleOptions) { o.valueBytes = 1 },
		"no slot":            func(o *scaleOptions) { o.slot = 0 },
		"little memory":      func(o *scaleOptions) { o.small = minMemoryMiB - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := testScaleOptions(t)
			spoil(o)
			require.Error(t, o.validate())
		})
	}
}

func TestScaleWantsRoomForAStore(t *testing.T) {
	o := testScaleOptions(t)
	require.NoError(t, disk.Enough(o.dir, 1))
	free, err := disk.Free(o.dir)
	require.NoError(t, err)
	require.ErrorContains(t, disk.Enough(o.dir, free), "MiB free")
}

func TestWhatAProcessHoldsIsSeen(t *testing.T) {
	before := heldNow()
	ballast := make([]byte, 16<<20)
	for i := range ballast {
		ballast[i] = 1
	}
	with := heldNow()
	runtime.KeepAlive(ballast)
	without := heldNow()
	assert.InDelta(t, 16<<20, with.Heap-before.Heap, 2<<20)
	assert.GreaterOrEqual(t, with.Resident-before.Resident, int64(12<<20), "more if races are looked for")
	assert.InDelta(t, before.Heap, without.Heap, 2<<20)
}

func TestForgottenFilesAreReadFromTheDisk(t *testing.T) {
	dir := t.TempDir()
	const size = 4 << 20
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, size), 0o600))
	require.NoError(t, disk.Sync(dir))
	if report.Environment(dir, commit).FileSystem == "tmpfs" {
		t.Skip("tmpfs has no disk to read from")
	}
	require.NoError(t, forgetFiles(dir))
	before := processIO()
	require.NoError(t, readFiles(dir))
	after := processIO()
	assert.GreaterOrEqual(t, after["rchar"]-before["rchar"], int64(size))
	assert.GreaterOrEqual(t, after["read_bytes"]-before["read_bytes"], int64(size))
	testwait.Until(t, func() bool { // the process may read pages of its own program meanwhile
		before := processIO()["read_bytes"]
		require.NoError(t, readFiles(dir))
		return processIO()["read_bytes"] == before
	}, "now they are cached")
}

func TestEveryNumberOfPartitionsIsAnEngine(t *testing.T) {
	for _, name := range []string{ours, "kvd-1", "kvd-7", "kvd-16"} {
		e, err := findEngine(name)
		require.NoError(t, err, name)
		assert.Equal(t, name, e.name)
		assert.False(t, isPeer(name))
	}
	for _, name := range []string{"kvd-0", "kvd--1", "kvd-04", "kvd-4x", "kvd-", "kvd-x"} {
		_, err := findEngine(name)
		require.Error(t, err, name)
	}
}

func TestStridesComeByEveryKey(t *testing.T) {
	for _, keys := range []int{1, 2, 3, 10, 999, 1000, 65_536} {
		place := dataset{Keys: keys, Order: orderStrided}.ordered(nil)
		seen := make([]bool, keys)
		for i := range keys {
			n := place(i)
			require.False(t, seen[n], "%d of %d twice", n, keys)
			seen[n] = true
		}
	}
	place := dataset{Keys: 10_000_000, Order: orderStrided}.ordered(nil)
	first := make([]bool, 10) // a batch has keys of all parts
	for i := range 100 {
		first[place(i)/1_000_000] = true
	}
	assert.NotContains(t, first, false)
}
