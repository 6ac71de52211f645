package partition_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// What memory does not have is left for Lookup, as it was: a block that is not cached,
// though an older table that is cached has the key, and a value that is apart.
func TestLookupCachedLeavesWhatNeedsTheDisk(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.close())
	o := s.options()
	o.ValueThreshold = 100
	s.openWith(o)
	p := s.p
	long := strings.Repeat("v", 100)
	s.run("put a=1 b=1 c=1 d=" + long + "\nflush\nget a b c\nput b=2\nflush\nput c=3")

	var reads []*kv.Lookup
	budget := kv.NewReadBudget(1 << 10)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		reads = append(reads, &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key)), Budget: budget})
	}
	require.NoError(t, p.Lookup(t.Context(), reads[3:4], nil)) // now its block is cached
	budget.Reset(1 << 10)
	before := p.Stats().Reads.Sum
	shares := []partition.ReadShare{{Partition: p, Reads: append([]*kv.Lookup(nil), reads...)}}
	partition.LookupCached(shares)
	require.Equal(t, []*kv.Lookup{reads[1], reads[3]}, shares[0].Reads)
	require.Equal(t, "1", string(reads[0].Value))
	require.Equal(t, "3", string(reads[2].Value))
	require.False(t, reads[4].Found)
	for _, r := range shares[0].Reads {
		require.Equal(t, &kv.Lookup{Key: r.Key, Hash: r.Hash, Budget: budget, Value: r.Value[:0]}, r)
	}
	require.True(t, budget.Take(1<<10-2) && !budget.Spent() && budget.Take(1) && budget.Spent(), "two values count, once")
	require.EqualValues(t, 3, p.Stats().Reads.Sum-before)

	budget.Reset(1 << 10)
	require.NoError(t, p.Lookup(t.Context(), shares[0].Reads, nil))
	require.Equal(t, "2", string(reads[1].Value))
	require.Equal(t, long, string(reads[3].Value))
}

// Reads that belong together are not answered in two steps.
func TestCachedReadsThatBelongTogetherAreAnsweredTogether(t *testing.T) {
	s := newScript(t)
	s.run("put a=1 b=1\nflush\nput a=2")
	reads := []*kv.Lookup{}
	for _, key := range []string{"a", "b"} {
		reads = append(reads, &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))})
	}
	shares := []partition.ReadShare{{Partition: s.p, Reads: reads, Together: true}}
	partition.LookupCached(shares)
	require.Equal(t, reads, shares[0].Reads, "the block of b is not in memory")
	require.NoError(t, s.p.Lookup(t.Context(), shares[0].Reads, nil))
	require.Equal(t, "2", string(reads[0].Value))
	require.Equal(t, "1", string(reads[1].Value))
	require.Equal(t, reads[0].ReadVersion, reads[1].ReadVersion)

	partition.LookupCached(shares)
	require.Empty(t, shares[0].Reads, "now it is")
}

// Reads of several versions are judged by the oldest.
func TestReadsAreJudgedByTheOldestVersion(t *testing.T) {
	for _, versions := range [][]kv.SeqNum{{7, 5, 9}, {5, 7, 9}, {9, 7, 5}} {
		var r partition.Reads
		for _, at := range versions {
			r.Read(partition.ReadKey{Key: []byte("k")}, at)
		}
		require.EqualValues(t, 5, r.At)
		r.Scanned([]kv.Range{{}}, 6)
		require.EqualValues(t, 5, r.At)
		r.Scanned([]kv.Range{{}}, 4)
		require.EqualValues(t, 4, r.At)
	}
}
