package memtable

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// TestAWalkBackwardIsAWalkForwardInReverse walks several runs with versions of a
// key on both sides of each border, and changes direction again and again.
func TestAWalkBackwardIsAWalkForwardInReverse(t *testing.T) {
	table := New(Options{})
	var m model
	const keys = 40
	for _, adds := range []int{2_000, 200, 20, 1} { // each makes a run
		for range adds {
			n := len(m)
			m.add(table, put(fmt.Sprintf("shared/prefix/%03d", n*7919%keys), kv.SeqNum(n+1)))
		}
		table.NewIterator()
	}
	it := table.NewIterator()
	require.Len(t, it.(*iterator).runs, 4)
	want := m.sorted()
	for i := range keys {
		require.True(t, it.First())
		key := fmt.Appendf(nil, "shared/prefix/%03d", i)
		require.Equal(t, i > 0, it.SeekLT(key))
		from := len(restBackward(it))
		it.SeekGE(key)
		requireEntries(t, want[from:], rest(it))
		it.SeekLT(key)
		requireEntries(t, reversed(want[:from]), restBackward(it))
	}
	require.True(t, it.Last())
	requireEntries(t, reversed(want), restBackward(it))
}

func TestTurningOnTheWayPanics(t *testing.T) {
	table := New(Options{})
	e := put("a", 1)
	table.Add(keyhash.Sum(e.Key), &e)
	it := table.NewIterator()
	for name, position := range map[string]func() bool{
		"First": it.First, "SeekGE": func() bool { return it.SeekGE([]byte("a")) },
	} {
		require.True(t, position(), name)
		require.Panics(t, func() { it.Prev() }, name)
		require.False(t, it.Next(), name)
		require.Panics(t, func() { it.Prev() }, "%s, after the end", name)
	}
	for name, position := range map[string]func() bool{
		"Last": it.Last, "SeekLT": func() bool { return it.SeekLT([]byte("b")) },
	} {
		require.True(t, position(), name)
		require.Panics(t, func() { it.Next() }, name)
		require.False(t, it.Prev(), name)
		require.Panics(t, func() { it.Next() }, "%s, before the beginning", name)
	}
}
