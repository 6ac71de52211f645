package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requireI1 checks the first invariant of knownKeys.
func requireI1(t *testing.T, k *knownKeys) {
	t.Helper()
	require.Len(t, k.index, len(k.slots))
	for i, key := range k.slots {
		if slot, ok := k.index[key.id]; !ok || int(slot) != i {
			t.Fatalf("key %d is in slot %d, the index says %d", key.id, i, slot)
		}
	}
}

func TestKnownKeysAgainstAMap(t *testing.T) {
	rng := testRand()
	k := newKnownKeys(false, 8000, rng)
	last := make(map[uint64]version) // by key: the last put, or absent
	for i := range 100_000 {
		id := rng.Uint64N(8000) // fewer than the capacity, so that none is replaced
		if rng.IntN(3) == 0 {
			k.remove(id)
			delete(last, id)
		} else {
			k.add(knownKey{id: id, version: version(i + 1)})
			last[id] = version(i + 1)
		}
	}
	requireI1(t, k)
	require.Len(t, k.slots, len(last))
	for id, v := range last {
		key, ok := k.lookup(id)
		require.True(t, ok)
		require.Equal(t, v, key.version, "I2")
	}
}

func TestKnownKeysAreAUniformSampleOfThePuts(t *testing.T) {
	const puts = 5 * knownCapacity
	k := newKnownKeys(false, knownCapacity, testRand())
	for id := range uint64(puts) {
		k.add(knownKey{id: id})
	}
	requireI1(t, k)
	require.Len(t, k.slots, knownCapacity)
	tenths := make([]int, 10)
	for _, key := range k.slots {
		tenths[key.id*10/puts]++
	}
	requireFits(t, tenths, func(int) float64 { return 0.1 })
}

func TestNewestKnownKeysAreTheLastOnes(t *testing.T) {
	const puts = 3*knownCapacity + 17
	k := newKnownKeys(true, knownCapacity, testRand())
	for id := range uint64(puts) {
		k.add(knownKey{id: id})
	}
	requireI1(t, k)
	for id := uint64(puts - knownCapacity); id < puts; id++ {
		if _, ok := k.lookup(id); !ok {
			t.Fatalf("key %d is forgotten", id)
		}
	}
}

func TestKnownKeysOfNothing(t *testing.T) {
	k := newKnownKeys(false, knownCapacity, testRand())
	_, ok := k.pick()
	assert.False(t, ok)
	k.remove(3)
	k.add(knownKey{id: 3})
	key, ok := k.pick()
	assert.True(t, ok)
	assert.EqualValues(t, 3, key.id)
	k.remove(3)
	requireI1(t, k)
	assert.Empty(t, k.slots)
}

func TestDeletionsExplainAnAbsentKeyOnlyIfOneCameBetween(t *testing.T) {
	d := newDeletions(100, 2)
	assert.False(t, d.possible(7, 1), "no delete at all")
	d.begin(0, 7)
	assert.True(t, d.possible(7, 1), "underway")
	assert.False(t, d.possible(8, 1), "of another key")
	d.end(0, 7, 50)
	assert.True(t, d.possible(7, 40), "returned after the put began")
	assert.True(t, d.possible(7, 50), "at the same moment")
	assert.False(t, d.possible(7, 51), "returned before the put began")
	d.end(1, 7, 45)
	assert.True(t, d.possible(7, 50), "the later of two ends counts, whichever is told last")
	d.begin(1, 0)
	assert.True(t, d.possible(0, 60), "key 0 is a key too")
}
