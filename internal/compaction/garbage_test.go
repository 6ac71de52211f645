package compaction

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
)

// TestValueFilesStayBounded overwrites keys in several patterns. After every flush,
// once Pick finds nothing to do, the garbage is within its bound, and all value files
// together hold no more than the package comment says. It also measures the bytes rewritten.
func TestValueFilesStayBounded(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 24 * simFlushEntries
	for name, c := range map[string]struct {
		key     func(s *simulation, i int) uint32
		garbage int
		moved   float64 // bound of the values rewritten per value put
	}{
		"uniform":             {func(s *simulation, _ int) uint32 { return s.rng.Uint32N(keys) }, 50, 0.3},
		"uniform, less space": {func(s *simulation, _ int) uint32 { return s.rng.Uint32N(keys) }, 30, 0.8},
		"in order, again":     {func(_ *simulation, i int) uint32 { return uint32(i % keys) }, 50, 0.1},
		"most to few keys": {func(s *simulation, _ int) uint32 {
			if s.rng.IntN(10) > 0 {
				return s.rng.Uint32N(keys / 10)
			}
			return s.rng.Uint32N(keys)
		}, 50, 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, 1)
			s.valueBytes = 1000
			policy := simPolicy
			policy.MaxGarbage = c.garbage
			most := 0.0
			const flushes = 150
			for n := range flushes {
				writes := make([]simEntry, simFlushEntries)
				for i := range writes {
					writes[i] = simEntry{key: c.key(s, n*simFlushEntries+i), delete: s.rng.IntN(20) == 0}
				}
				s.flush(writes)
				s.settle(policy)
				all, garbage := s.version.ValueBytes()
				require.LessOrEqual(t, 100*garbage, uint64(c.garbage)*all)
				live := uint64(0)
				for _, there := range s.newest {
					if there {
						live += s.valueBytes
					}
				}
				if n > flushes/2 {
					most = max(most, float64(all)/float64(live))
				}
			}
			s.requireContents()
			moved := float64(s.valuesMoved) / float64(s.flushed)
			t.Logf("%.2f values rewritten for each put; at most %.2f bytes for each live byte; %.2f keys written for each put; %v",
				moved, most, float64(s.written)/float64(s.flushed), s.reasons)
			assert.LessOrEqual(t, moved, c.moved)
			assert.LessOrEqual(t, most, 1.5/(1-float64(c.garbage)/100))
			assert.LessOrEqual(t, s.largestMoved, rewriteFactor*policy.DrainBytes+simFlushEntries*s.valueBytes)
		})
	}
}

// needing makes the tables of a run point to this many values of 1 MiB each in a file.
func needing(run manifest.Run, file kv.FileNum, values ...uint64) {
	for i, n := range values {
		if n > 0 {
			run[i].Values = append(run[i].Values, kv.ValueRef{File: file, Values: n, Bytes: n << 20})
		}
	}
}

func valueFile(num kv.FileNum, values uint64) kv.ValueFileMeta {
	return kv.ValueFileMeta{Num: num, Size: values<<20 + 100, Values: values, Bytes: values << 20}
}

func TestPickEmptiesTheWorstValueFile(t *testing.T) {
	none := func() *manifest.Version { return build(shape{8, 100, 0}, one(1)) } // the base: 10 to 17, the delta: 18
	for name, c := range map[string]struct {
		version func() *manifest.Version
		want    string
	}{
		"half is not too much": {func() *manifest.Version {
			v := none()
			needing(v.Base, 900, 10)
			v.Values = []kv.ValueFileMeta{valueFile(900, 20)}
			return v
		}, "none"},
		"more is": {func() *manifest.Version {
			v := none()
			needing(v.Base, 900, 10, 9)
			v.Values = []kv.ValueFileMeta{valueFile(900, 40)}
			return v
		}, "base (garbage) of 0 deltas and 1 tables of the base: [10], emptying [900]"},
		"the worst first": {func() *manifest.Version {
			v := none()
			needing(v.Base, 900, 30)
			needing(v.Base, 901, 0, 0, 10)
			v.Values = []kv.ValueFileMeta{valueFile(900, 40), valueFile(901, 100)}
			return v
		}, "base (garbage) of 0 deltas and 1 tables of the base: [12], emptying [901]"},
		"in a delta": {func() *manifest.Version {
			v := none()
			needing(v.Deltas[0], 900, 1)
			v.Values = []kv.ValueFileMeta{valueFile(900, 10)}
			return v
		}, "deltas (garbage) of 1 deltas and 0 tables of the base: [18], emptying [900]"},
		"a drain takes part": {func() *manifest.Version {
			v := build(shape{2, 10, 0}, one(20)) // 10 and 11, 12
			needing(v.Base, 900, 5)
			v.Values = []kv.ValueFileMeta{valueFile(900, 9)}
			return v
		}, "base (size) of 1 deltas and 2 tables of the base: [12 10 11], emptying [900]"},
		"a merge of deltas empties only what it empties for good": {func() *manifest.Version {
			v := build(shape{8, 100, 0}, one(1), one(1), one(1), one(1))
			needing(v.Base, 900, 1)
			needing(v.Deltas[0], 900, 1)
			needing(v.Deltas[1], 901, 1)
			v.Values = []kv.ValueFileMeta{valueFile(900, 9), valueFile(901, 9)}
			return v
		}, "deltas (tier) of 4 deltas and 0 tables of the base: [21 20 19 18], emptying [901]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "none"
			if c, ok := Pick(c.version(), Policy{}, Known{OldestSnapshot: kv.MaxSeqNum}); ok {
				got = c.String()
			}
			assert.Equal(t, c.want, got)
		})
	}
}
