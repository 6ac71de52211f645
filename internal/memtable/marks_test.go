package memtable

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// TestWrittenSinceIsAFilterOfAllEntries reads from every number, with batches of
// several sizes around the distance of marks, and chunks that end anywhere.
func TestWrittenSinceIsAFilterOfAllEntries(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, chunk := range []int{64, 1 << 10, DefaultChunkBytes} {
		for _, batch := range []int{1, 3, markEvery, 3*markEvery + 1} {
			table := New(Options{ChunkBytes: chunk})
			var m model
			const n = 10*markEvery + 5
			for i := range n {
				m.add(table, put(fmt.Sprint(i), kv.SeqNum(10+2*(i/batch))))
			}
			for seq := range table.MaxSeq() + 2 {
				requireEntries(t, m.since(seq), writtenSince(table, seq, n+1))
			}
			requireEntries(t, m.since(0)[:1], writtenSince(table, 0, 1))
		}
	}
}

// TestWrittenSinceStepsOverFewRecords bounds the records between the mark that the walk
// begins at and the first entry that it returns.
func TestWrittenSinceStepsOverFewRecords(t *testing.T) {
	table := New(Options{})
	var m model
	for i := range 20 * markEvery {
		m.add(table, put(fmt.Sprint(i), kv.SeqNum(1+i/7)))
	}
	for seq := range table.MaxSeq() + 1 {
		stepped := 0
		table.arena.walk(table.marks.before(seq), func(_ uint64, r record) bool {
			if r.seq() > seq {
				return false
			}
			stepped++
			return true
		})
		require.LessOrEqual(t, stepped, markEvery, "since %d", seq)
	}
}
