package sstable

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
)

// partitionHashes returns n hashes of one of 64 partitions, which have the same high
// bits, as the hashes of a real file do.
func partitionHashes(prefix string, n int) []uint64 {
	var hashes []uint64
	key := append([]byte(prefix), make([]byte, 8)...)
	for i := uint64(0); len(hashes) < n; i++ {
		binary.BigEndian.PutUint64(key[len(prefix):], i)
		hash := keyhash.Sum(key)
		if keyhash.Partition(hash, 64) == 17 {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

func TestFilterAdmitsEveryKeyAdded(t *testing.T) {
	for _, n := range []int{1, 2, 50, 51, 52, 1000} {
		for _, bitsPerKey := range []int{1, 5, 10, 20, maxFilterBits} {
			hashes := partitionHashes("present", n)
			f, ok := parseFilter(appendFilter(nil, hashes, bitsPerKey))
			require.True(t, ok)
			for _, hash := range hashes {
				require.True(t, f.mayContain(hash))
			}
		}
	}
}

// Compare the share of absent keys that pass with the theory of blocked filters
// (Putze, Sanders, Singler 2007, section 3): the number of keys per line is
// Poisson distributed, and each line is a small Bloom filter.
func TestFilterRateIsNearTheory(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 5_000
	}
	present, absent := partitionHashes("present", n), partitionHashes("absent", 3*n)
	for _, bitsPerKey := range []int{4, 8, 10, 14} {
		f, ok := parseFilter(appendFilter(nil, present, bitsPerKey))
		require.True(t, ok)
		passed := 0
		for _, hash := range absent {
			if f.mayContain(hash) {
				passed++
			}
		}
		perLine := float64(n) / float64(f.count)
		theory, poisson := 0.0, math.Exp(-perLine)
		for i := range 4 * filterLineBits {
			fill := 1 - math.Pow(1-1.0/filterLineBits, float64(i*f.probes))
			theory += poisson * math.Pow(fill, float64(f.probes))
			poisson *= perLine / float64(i+1)
		}
		rate := float64(passed) / float64(len(absent))
		sigma := math.Sqrt(theory / float64(len(absent)))
		t.Logf("%d bits per key: %.4f pass, theory says %.4f", bitsPerKey, rate, theory)
		assert.InDelta(t, theory, rate, 0.1*theory+4*sigma, "%d bits per key", bitsPerKey)
	}
}
