package compaction

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// In a table of the base, expired entries count as dead, and so do older versions that
// a snapshot kept; a table that is entirely dead is dropped unread.
func TestPickCountsWhatExpiredAndWhatIsShadowed(t *testing.T) {
	v := build(shape{4, 100, 0}) // tables 10 to 13, of 1,000 entries each
	half := kv.TableStats{Expiring: 500, Expiries: []uint64{1000, 2000}}
	all := kv.TableStats{Expiring: 1000, Expiries: []uint64{1000, 2000}}
	for name, c := range map[string]struct {
		stats  kv.TableStats // of table 11
		now    uint64
		oldest kv.SeqNum
		policy Policy
		want   string
	}{
		"nothing has expired":            {all, 999, kv.MaxSeqNum, Policy{}, "none"},
		"a fifth has":                    {all, 1200, kv.MaxSeqNum, Policy{}, "none"},
		"a fifth has, at rest":           {all, 1200, kv.MaxSeqNum, Policy{}.AtRest(), "base (tombstones) of 0 deltas and 1 tables of the base: [11]"},
		"a quarter has":                  {all, 1250, kv.MaxSeqNum, Policy{}, "base (tombstones) of 0 deltas and 1 tables of the base: [11]"},
		"a quarter has, for a snapshot":  {all, 1250, 99, Policy{}, "none"},
		"half can, and has":              {half, 2000, kv.MaxSeqNum, Policy{}, "base (tombstones) of 0 deltas and 1 tables of the base: [11]"},
		"everything has":                 {all, 2000, kv.MaxSeqNum, Policy{}, "base (dead) of 0 deltas and 1 tables of the base: [11], unread"},
		"everything has, for a snapshot": {all, 2000, 99, Policy{}, "none"},
		"old versions":                   {kv.TableStats{Shadowed: 250}, 0, kv.MaxSeqNum, Policy{}, "base (tombstones) of 0 deltas and 1 tables of the base: [11]"},
		"few old versions":               {kv.TableStats{Shadowed: 249}, 0, kv.MaxSeqNum, Policy{}, "none"},
		"old versions, for a snapshot":   {kv.TableStats{Shadowed: 900}, 0, 99, Policy{}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			known := Known{OldestSnapshot: c.oldest, Now: c.now, Stats: func(num kv.FileNum) kv.TableStats {
				if num == 11 {
					return c.stats
				}
				return kv.TableStats{}
			}}
			assert.Equal(t, c.want, picked(Pick(v, c.policy, known)))
		})
	}
}

// A table of the base that has only tombstones, kept for a snapshot that has ended,
// is dropped unread.
func TestPickDropsATableOfTombstones(t *testing.T) {
	v := build(shape{2, 100, 1})
	for oldest, want := range map[kv.SeqNum]string{
		100: "base (dead) of 0 deltas and 2 tables of the base: [10 11], unread", 99: "none",
	} {
		assert.Equal(t, want, picked(Pick(v, Policy{}, Known{OldestSnapshot: oldest})))
	}
}

// Expired entries of a delta count towards a drain as tombstones do.
func TestExpiredEntriesOfADeltaAreWorthADrain(t *testing.T) {
	v := build(shape{4, 100, 0}, shape{1, 1, 0}) // the delta: table 14
	v.Deltas[0][0].Entries = 2000
	known := Known{OldestSnapshot: kv.MaxSeqNum, Now: 999, Stats: func(num kv.FileNum) kv.TableStats {
		if num == 14 {
			return kv.TableStats{Expiring: 2000, Expiries: []uint64{1000, 1000}}
		}
		return kv.TableStats{}
	}}
	require.Equal(t, "none", picked(Pick(v, Policy{}, known)))
	known.Now = 1000
	require.Equal(t, "base (tombstones) of 1 deltas and 4 tables of the base: [14 10 11 12 13]", picked(Pick(v, Policy{}, known)))
}

// A delta that is small may hide much of the base: large values that small ones have overwritten.
func TestAtRestSmallValuesAreMergedIntoLargeOnes(t *testing.T) {
	for name, c := range map[string]struct {
		entries []uint64 // of deltas of 1 MiB, over a base of 40,000 entries in 4,000 MiB
		policy  Policy
		want    string
	}{
		"a sixteenth of the entries":       {[]uint64{2501}, Policy{}.AtRest(), "base (space) of 1 deltas and 40 tables of the base"},
		"fewer":                            {[]uint64{2499}, Policy{}.AtRest(), "none"},
		"together a sixteenth":             {[]uint64{1251, 1251}, Policy{}.AtRest(), "deltas (space) of 2 deltas and 0 tables of the base"},
		"a sixteenth, but not at rest":     {[]uint64{2501}, Policy{}, "none"},
		"all of the entries, under a load": {[]uint64{40_000}, Policy{}, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			deltas := make([]shape, len(c.entries))
			for i := range deltas {
				deltas[i] = one(1)
			}
			v := build(shape{40, 100, 0}, deltas...)
			for i, entries := range c.entries {
				v.Deltas[i][0].Entries = entries
			}
			c.policy.DrainBytes = 8 << 30
			got, _, _ := strings.Cut(picked(Pick(v, c.policy, Known{OldestSnapshot: kv.MaxSeqNum})), ":")
			assert.Equal(t, c.want, got)
		})
	}
}

// At rest the stored bytes are at most a quarter more than the live ones.
func TestAtRestLittleIsStoredThatIsNotLive(t *testing.T) {
	testsize.OneGoroutine(t)
	for name, valueBytes := range map[string]uint64{"inline values": 0, "separated values": 1000} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				s := newSimulation(t, seed)
				s.valueBytes = valueBytes
				keys := uint32(1+s.rng.IntN(20)) * simFlushEntries
				for range 60 {
					s.flush(s.writes(1+s.rng.IntN(simFlushEntries), keys, 0.3))
					s.settle(simPolicy)
				}
				s.settle(simPolicy.AtRest())
				s.requireContents()
				live := uint64(0)
				for _, there := range s.newest {
					if there {
						live += simEntryBytes + valueBytes
					}
				}
				all, _ := s.version.ValueBytes()
				stored := s.version.Bytes() + all
				t.Logf("%d live, %d stored: %.2f", live, stored, float64(stored)/float64(live))
				require.LessOrEqual(t, float64(stored), 1.27*float64(live))
			}
		})
	}
}
