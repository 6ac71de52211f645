package keyhash

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The values never change: stores on disk depend on them. The first
// three are test vectors of the hash's specification.
func TestSumGolden(t *testing.T) {
	for key, want := range map[string]uint64{
		"":         0xef46db3751d8e999,
		"a":        0xd24ec4f1a98c6e5b,
		"abc":      0x44bc2cf5ad770999,
		"\x00\xff": 0xe0d97d9a03131d7d,
	} {
		assert.Equal(t, fmt.Sprintf("%016x", want), fmt.Sprintf("%016x", Sum([]byte(key))), "%q", key)
	}
}

// W6: abs(hash) % n is negative for the smallest int. Every hash must have a
// partition.
func TestEveryHashHasAPartitionW6(t *testing.T) {
	hashes := []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<63 - 1, 1 << 63, 1<<64 - 1}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		hashes = append(hashes, rng.Uint64())
	}
	for _, n := range []int{1, 2, 3, 4, 7, 16, 1000} {
		for _, h := range hashes {
			if p := Partition(h, n); p < 0 || p >= n {
				t.Fatalf("Partition(%#x, %d) = %d", h, n, p)
			}
		}
	}
}

// P1: keys that are decimal counters spread evenly.
func TestDecimalKeysSpreadEvenly(t *testing.T) {
	const keys, n = 160_000, 16
	var counts [n]int
	for i := range keys {
		counts[Partition(Sum(fmt.Appendf(nil, "%016d", i)), n)]++
	}
	for p, c := range counts {
		assert.InEpsilon(t, keys/n, c, 0.05, "partition %d", p)
	}
}

// The low bits are evenly distributed inside one partition, where the high bits are equal.
func TestLowBitsAreFreeInsideAPartition(t *testing.T) {
	var counts [64]int
	total := 0
	var key [8]byte
	for i := range uint64(400_000) {
		binary.LittleEndian.PutUint64(key[:], i)
		if h := Sum(key[:]); Partition(h, 16) == 5 {
			counts[h%64]++
			total++
		}
	}
	require.Positive(t, total)
	for i, c := range counts {
		assert.InEpsilon(t, total/64, c, 0.25, "slot %d", i)
	}
}
