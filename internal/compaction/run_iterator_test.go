package compaction

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

func TestRunIteratorIsOneIterator(t *testing.T) {
	s := newShelf(t)
	var entries []kv.Entry
	for i := range 30 {
		entries = append(entries, put(fmt.Sprintf("%03d", 2*i), 5), put(fmt.Sprintf("%03d", 2*i), 3))
	}
	run := s.put(8, entries...)
	require.Greater(t, len(run), 5)
	it := newRunIterator(run, s.Open)
	require.False(t, it.Valid())
	require.False(t, it.Next())
	for range 2 {
		require.Equal(t, entries, walk(it, it.First()))
	}
	for key := range 62 {
		from := fmt.Appendf(nil, "%03d", key)
		want := entries
		for len(want) > 0 && bytes.Compare(want[0].Key, from) < 0 {
			want = want[1:]
		}
		require.Equal(t, brief(want), brief(walk(it, it.SeekGE(from))))
		require.NoError(t, it.Err())
	}
	require.True(t, it.First())
	require.NoError(t, it.Close())
	require.NoError(t, it.Close())
	require.False(t, it.Valid())
	require.False(t, it.First(), "closed")
	s.requireNoneOpen()

	empty := newRunIterator(manifest.Run{}, s.Open)
	require.False(t, empty.First())
	require.NoError(t, empty.Close())
}

// walk returns what the iterator gives from where it stands.
func walk(it kv.Iterator, valid bool) []kv.Entry {
	var all []kv.Entry
	for ; valid; valid = it.Next() {
		e := *it.Entry()
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		all = append(all, e)
	}
	return all
}

func BenchmarkRun(b *testing.B) {
	s := newShelf(b)
	var runs [4][]kv.Entry
	for i := range 100_000 {
		e := kv.Entry{Key: fmt.Appendf(nil, "key-%012d", i), Value: bytes.Repeat([]byte{byte(i)}, 100), Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
		runs[i%4] = append(runs[i%4], e)
	}
	var c Choice
	for _, entries := range runs {
		c.Deltas = append(c.Deltas, s.put(25_000, entries...))
	}
	c.Kind = manifest.CompactDeltas
	for _, verify := range []bool{false, true} {
		b.Run(fmt.Sprintf("verify=%t", verify), func(b *testing.B) {
			b.SetBytes(int64(c.Bytes()))
			for b.Loop() {
				got, err := Run(b.Context(), Job{Choice: c, Open: s.Open, Outputs: s, Verify: verify})
				require.NoError(b, err)
				for _, t := range got.Tables {
					require.NoError(b, s.Remove(t.Num))
				}
			}
		})
	}
}
