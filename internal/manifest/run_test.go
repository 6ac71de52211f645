package manifest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestRunLooksUpWhatALinearSearchFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var run Run
		for at := rapid.IntRange(0, 9).Draw(t, "first"); at < 90; {
			end := at + rapid.IntRange(0, 8).Draw(t, "width")
			run = append(run, table(kv.FileNum(len(run)+1), fmt.Sprintf("%02d", at), fmt.Sprintf("%02d", end), 1, 1))
			at = end + 1 + rapid.IntRange(0, 8).Draw(t, "gap")
		}
		lo := rapid.IntRange(0, 99).Draw(t, "lo")
		hi := lo + rapid.IntRange(0, 40).Draw(t, "span")
		key, end := fmt.Appendf(nil, "%02d", lo), fmt.Appendf(nil, "%02d", hi)
		if hi > 99 {
			end = []byte("\xff")
		}
		var want *kv.TableMeta
		var overlapping Run
		for i := range run {
			if run[i].Overlaps(key, key) {
				want = &run[i]
			}
			if run[i].Overlaps(key, end) {
				overlapping = append(overlapping, run[i])
			}
		}
		require.Same(t, want, run.Find(key))
		require.Equal(t, nums(overlapping), nums(run.Overlapping(key, end)))
	})
}

func TestRunSums(t *testing.T) {
	run := Run{table(1, "a", "b", 5, 9), table(2, "c", "d", 2, 7)}
	require.Equal(t, uint64(101+102), run.Bytes())
	require.Equal(t, uint64(20), run.Entries())
	require.Equal(t, uint64(2), run.Deletes())
	first, last := run.SeqBounds()
	require.Equal(t, [2]kv.SeqNum{2, 9}, [2]kv.SeqNum{first, last})
	v := &Version{Deltas: []Run{run[:1], run[1:]}, Base: run}
	require.Equal(t, run.Bytes(), v.DeltaBytes())
	require.Equal(t, 2*run.Bytes(), v.Bytes())
	require.Equal(t, 2*run.Entries(), v.Entries())
	first, last = Run(nil).SeqBounds()
	require.Zero(t, first)
	require.Zero(t, last)
}
