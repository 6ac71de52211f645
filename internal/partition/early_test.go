package partition

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// Against a map of numbers: records leave a line in any order, from its head or early.
func TestEarlyAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line []*pending
		next := kv.SeqNum(1)
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			next += kv.SeqNum(rapid.IntRange(0, 3).Draw(t, "numbers of other partitions"))
			units := uint32(rapid.IntRange(0, 3).Draw(t, "units")) // 0: all had been applied before
			line = append(line, &pending{base: next, units: units})
			next += kv.SeqNum(units)
		}
		var set early
		seen := map[kv.SeqNum]bool{}
		for len(line) > 0 {
			i := rapid.IntRange(0, len(line)-1).Draw(t, "leaves")
			rec := line[i]
			line = append(line[:i:i], line[i+1:]...)
			if rec.units == 0 {
				continue
			}
			set = set.with(numbers{rec.base, rec.last()}, line)
			for n := rec.base; n <= rec.last(); n++ {
				seen[n] = true
			}
			require.LessOrEqual(t, len(set), len(line)+1)
			for n := kv.SeqNum(1); n < next; n++ {
				if inLine(line, n) {
					require.False(t, set.has(n), "number %d of the line is in %v", n, set)
				}
				if seen[n] {
					require.True(t, set.has(n), "number %d is missing in %v", n, set)
				}
			}
			require.True(t, seen[set.newest()])
		}
	})
}

func inLine(line []*pending, n kv.SeqNum) bool {
	for _, rec := range line {
		if rec.units > 0 && rec.base <= n && n <= rec.last() {
			return true
		}
	}
	return false
}
