package experiment

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// storeFiles makes files as a store has them. Each byte of a data file tells its block.
func storeFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, bytes := range map[string]int{"0000/1.sst": 40_000, "0000/2.val": 80_000, "0001/3.sst": leastFile - 1, "wal/1.wal": 9000, "STORE": 5000} {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, make([]byte, bytes), 0o600))
	}
	return dir
}

func TestDataFilesAreTablesAndValueFilesOfSomeSize(t *testing.T) {
	dir := storeFiles(t)
	d, err := openFiles(dir)
	require.NoError(t, err)
	assert.Len(t, d.files, 2)
	assert.EqualValues(t, 120_000, d.bytes)
	require.NoError(t, d.close())

	data, log, err := fileSizes(dir)
	require.NoError(t, err)
	assert.EqualValues(t, 120_000+leastFile-1, data)
	assert.EqualValues(t, 9000, log)

	_, err = openFiles(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, _, err = fileSizes(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = evictAll(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestRawReadsAreUniform does a chi-square test over blocks of the files: see requireFits of
// package workload.
func TestRawReadsAreUniform(t *testing.T) {
	d, err := openFiles(storeFiles(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	const block, n = 10_000, 120_000
	counts := make(map[string][]int)
	rng := rand.New(rand.NewPCG(42, 7))
	for range n {
		f, off, length := d.draw(rng, 1)
		require.Equal(t, 1, length)
		if counts[f.Name()] == nil {
			size, err := f.Size()
			require.NoError(t, err)
			counts[f.Name()] = make([]int, size/block)
		}
		counts[f.Name()][off/block]++
	}
	chi2, cells := 0.0, 0.0
	for _, blocks := range counts {
		for _, c := range blocks {
			expected := float64(n) * block / float64(d.bytes)
			chi2 += (float64(c) - expected) * (float64(c) - expected) / expected
			cells++
		}
	}
	assert.Equal(t, 12.0, cells)
	assert.Less(t, chi2, cells-1+5*math.Sqrt(2*(cells-1)))

	for range 1000 { // larger reads stay inside of a file
		f, off, length := d.draw(rng, 50_000)
		size, err := f.Size()
		require.NoError(t, err)
		require.LessOrEqual(t, off+int64(length), size)
		require.GreaterOrEqual(t, off, int64(0))
		require.EqualValues(t, min(50_000, size), length)
	}
}

func TestFilesAreEvictedUntilTheMeasurementEnds(t *testing.T) {
	dir := storeFiles(t)
	synctest.Test(t, func(t *testing.T) {
		d, err := openFiles(dir)
		require.NoError(t, err)
		stop, ok, err := d.evicting()
		require.NoError(t, err)
		assert.Equal(t, runtime.GOOS == "linux", ok)
		time.Sleep(3 * evictEvery)
		require.NoError(t, stop())

		if ok {
			stop, _, err := d.evicting()
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(dir, "0000/1.sst")))
			time.Sleep(2 * evictEvery)
			require.ErrorIs(t, stop(), os.ErrNotExist, "an error is not lost")
		}
		require.NoError(t, d.close())
	})
	_, err := evictAll(dir)
	require.NoError(t, err)
}

func TestRawReadsAreCounted(t *testing.T) {
	d, err := openFiles(storeFiles(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.close()) }()
	r := d.reading(2, 4096, 1)
	r.Span = loadgen.Span{Workers: 2, Operations: 10, Interval: time.Second}
	trial, err := r.Do(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 10, trial.Ops)
	calls, bytes := d.counts()
	assert.EqualValues(t, 10, calls)
	assert.EqualValues(t, 40_960, bytes)
}
