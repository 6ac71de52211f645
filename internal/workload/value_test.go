package workload

import (
	"bytes"
	"compress/flate"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestKeysAreSixteenDigitsAndAbsentOnesAreLonger(t *testing.T) {
	for _, id := range []uint64{0, 7, 10, 99, 100, 12345, 9_999_999, MaxKeys - 1} {
		var key [KeyBytes + 1]byte
		putKey(key[:KeyBytes], id)
		assert.Equal(t, fmt.Sprintf("%016d", id), string(key[:KeyBytes]))
		assert.Equal(t, id, keyNumber(key[:]))
		putAbsentKey(key[:], id)
		assert.Equal(t, fmt.Sprintf("%016d!", id), string(key[:]))
	}
}

func TestLongerKeysHaveMoreZeros(t *testing.T) {
	for _, length := range []int{17, 18, 64, 1001} {
		for _, id := range []uint64{0, 9, 10, 123, MaxKeys - 1} {
			key := make([]byte, length)
			putKey(key, id)
			assert.Equal(t, fmt.Sprintf("%0*d", length, id), string(key))
		}
	}
}

func TestAValueTellsItsKeyAndItsPut(t *testing.T) {
	rng := testRand()
	for _, size := range []int{MinValueBytes, MinValueBytes + 1, 100, 1024, poolBytes + 3} {
		pool := newValuePool(size, 0, 1)
		value := make([]byte, size)
		want := newVersion(loadgen.MaxWorkers, 1<<48-1)
		for range 10 {
			pool.fill(value, 123, want, rng.Uint64())
			got, err := checkValue(value, 123, keyNames(KeyBytes))
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

func TestEveryFlippedBitOfAValueIsNoticed(t *testing.T) {
	value := make([]byte, 64)
	newValuePool(len(value), 0, 1).fill(value, 5, newVersion(1, 2), 3)
	for bit := range len(value) * 8 {
		value[bit/8] ^= 1 << (bit % 8)
		_, err := checkValue(value, 5, keyNames(KeyBytes))
		require.ErrorIs(t, err, ErrWrongAnswer, "bit %d", bit)
		value[bit/8] ^= 1 << (bit % 8)
	}
	_, err := checkValue(value, 5, keyNames(KeyBytes))
	require.NoError(t, err)
	_, err = checkValue(value, 6, keyNames(KeyBytes))
	require.ErrorContains(t, err, "key 0000000000000006 has the value of key 0000000000000005")
	for n := range len(value) {
		_, err = checkValue(value[:n], 5, keyNames(KeyBytes))
		require.ErrorIs(t, err, ErrWrongAnswer, "cut to %d bytes", n)
	}
}

func TestValuesAreUniqueAndDoNotCompress(t *testing.T) {
	testsize.OneGoroutine(t)
	const count, size = 1000, 1024
	rng := testRand()
	pool := newValuePool(size, 0, 1)
	seen := make(map[string]bool)
	var all bytes.Buffer
	value := make([]byte, size)
	for i := range count {
		pool.fill(value, 1, newVersion(0, uint64(i)), rng.Uint64())
		seen[string(value)] = true
		all.Write(value)
	}
	assert.Len(t, seen, count)

	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(all.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	assert.Greater(t, packed.Len(), count*size*95/100)
}

func TestValuesAreAsCompressibleAsAskedFor(t *testing.T) {
	testsize.OneGoroutine(t)
	const count, size = 200, 2048
	for _, share := range []float64{0, 0.25, 0.5, 0.75, 1} {
		rng, pool := testRand(), newValuePool(size, share, 1)
		seen := make(map[string]bool)
		stored := 0
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		require.NoError(t, err)
		for i := range count {
			value := make([]byte, size)
			pool.fill(value, 1, newVersion(0, uint64(i)), rng.Uint64())
			seen[string(value)] = true
			packed.Reset() // each value by itself, as a store of values would
			w.Reset(&packed)
			_, err := w.Write(value)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			stored += packed.Len()
		}
		assert.Len(t, seen, count)
		assert.InDelta(t, 1-share, float64(stored)/(count*size), 0.08, "share %v", share)
	}
}

func FuzzCheckValue(f *testing.F) {
	value := make([]byte, 40)
	newValuePool(len(value), 0, 1).fill(value, 9, newVersion(3, 4), 5)
	f.Add(value, uint64(9))
	f.Add(value[:MinValueBytes], uint64(9))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, id uint64) {
		v, err := checkValue(data, id, keyNames(KeyBytes))
		if err != nil {
			require.ErrorIs(t, err, ErrWrongAnswer)
			return
		}
		again := bytes.Clone(data)
		require.GreaterOrEqual(t, len(again), MinValueBytes)
		pool := &valuePool{random: make([]byte, poolBytes+len(again))}
		copy(pool.random, again[MinValueBytes:])
		pool.fill(again, id, v, 0)
		require.Equal(t, data, again, "what is accepted is what fill would have made")
	})
}
