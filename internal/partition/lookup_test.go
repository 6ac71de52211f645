package partition_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// What memory does not have is left for Rest, as it was: a block that is not cached,
// though an older table that is cached has the key, and a value that is apart and not cached
// although its block is.
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
	before := p.Stats().Reads.Sum
	l := partition.BeginLookup([]partition.ReadShare{{Partition: p, Reads: append([]*kv.Lookup(nil), reads...)}})
	require.False(t, l.Cached())
	left := l.Left(0)
	require.Equal(t, []*kv.Lookup{reads[1], reads[3]}, left)
	require.Equal(t, "1", string(reads[0].Value))
	require.Equal(t, "3", string(reads[2].Value))
	require.False(t, reads[4].Found)
	for _, r := range left {
		require.Equal(t, &kv.Lookup{Key: r.Key, Hash: r.Hash, Budget: budget, Value: r.Value[:0]}, r)
	}
	require.True(t, budget.Take(1<<10-2) && !budget.Spent() && budget.Take(1) && budget.Spent(), "two values count, once")

	budget.Reset(1 << 10)
	require.NoError(t, l.Rest(t.Context(), 0, nil))
	require.Empty(t, l.Left(0))
	l.End()
	require.Equal(t, "2", string(reads[1].Value))
	require.Equal(t, long, string(reads[3].Value))
	require.EqualValues(t, len(reads), p.Stats().Reads.Sum-before, "each counts once")
}

// Both phases answer at the version of the first, whatever is written, flushed and merged
// between them, with or without other reads in the micro-batch.
func TestBothPhasesOfALookupAnswerAtOneVersion(t *testing.T) {
	for name, rest := range map[string]func(t *testing.T, p *partition.Partition, l partition.TwoPhaseLookup){
		"in a micro-batch": func(t *testing.T, _ *partition.Partition, l partition.TwoPhaseLookup) {
			require.NoError(t, l.Rest(t.Context(), 0, nil))
		},
		"alone": func(_ *testing.T, _ *partition.Partition, l partition.TwoPhaseLookup) { l.RestAlone() },
	} {
		for between, commands := range map[string]string{
			"written": "put a=3 b=3 c=3",
			"flushed": "put a=3 b=3 c=3\nflush",
			"deleted": "del b c",
		} {
			t.Run(name+", "+between, func(t *testing.T) {
				s := newScript(t)
				s.run("put a=1 b=1\nflush\nput a=2")
				reads := []*kv.Lookup{}
				for _, key := range []string{"a", "b", "c"} {
					reads = append(reads, &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))})
				}
				l := partition.BeginLookup([]partition.ReadShare{{Partition: s.p, Reads: append([]*kv.Lookup(nil), reads...)}})
				require.False(t, l.Cached(), "the block of b is not in memory")
				require.Contains(t, l.Left(0), reads[1])
				s.run(commands)
				rest(t, s.p, l)
				l.End()
				require.Equal(t, "2", string(reads[0].Value))
				require.Equal(t, "1", string(reads[1].Value))
				require.False(t, reads[2].Found)
				for _, r := range reads {
					require.NoError(t, r.Err)
					require.Equal(t, reads[0].ReadVersion, r.ReadVersion)
				}
			})
		}
	}
}

// One micro-batch serves lookups that began at different versions, each at its own, in both
// phases or in one. Their separated values are read together.
func TestAMicroBatchServesSeveralVersions(t *testing.T) {
	s := newScript(t)
	require.NoError(t, s.close())
	o := s.options()
	o.ValueThreshold = 100
	s.openWith(o)
	value := func(version int) string { return strings.Repeat(strconv.Itoa(version), 100) }
	keys := []string{"a", "b"}
	ask := func() (reads []*kv.Lookup) {
		for _, key := range keys {
			reads = append(reads, &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))})
		}
		return reads
	}
	var lookups []partition.TwoPhaseLookup
	var asked [][]*kv.Lookup
	for version := range 3 {
		s.run("put a=" + value(version) + " b=" + value(version) + "\nflush")
		asked = append(asked, ask())
		lookups = append(lookups, partition.BeginLookup([]partition.ReadShare{{Partition: s.p, Reads: slices.Clone(asked[version])}}))
		require.False(t, lookups[version].Cached())
		require.Len(t, lookups[version].Left(0), len(keys))
	}
	s.run("put a=" + value(3) + "\nflush")
	newest := [][]*kv.Lookup{ask(), ask()}
	for _, reads := range newest {
		lookups = append(lookups, partition.BeginLookup([]partition.ReadShare{{Partition: s.p, Reads: slices.Clone(reads)}}))
	}
	s.p.RestTogether(lookups)
	for _, l := range lookups {
		l.End()
	}
	for version, reads := range asked {
		for _, r := range reads {
			require.NoError(t, r.Err)
			require.Equal(t, value(version), string(r.Value), "%s at version %d", r.Key, version)
			require.Equal(t, reads[0].ReadVersion, r.ReadVersion)
		}
	}
	for _, reads := range newest {
		require.Equal(t, value(3), string(reads[0].Value))
		require.Equal(t, value(2), string(reads[1].Value))
		require.Greater(t, reads[0].ReadVersion, asked[2][0].ReadVersion)
	}
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
