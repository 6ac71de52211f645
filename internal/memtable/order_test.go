package memtable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// TestSortOfAwkwardKeys sorts groups large enough for every part of the radix
// sort: words that are all equal, keys that end inside one, keys that differ only in
// trailing zeros, many versions of a key.
func TestSortOfAwkwardKeys(t *testing.T) {
	testsize.OneGoroutine(t)
	const n = 2_000
	rng := rand.New(rand.NewPCG(1, 1))
	for name, key := range map[string]func(i int) []byte{
		"one byte":        func(i int) []byte { return []byte{byte(i)} },
		"random":          func(int) []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) },
		"long prefix":     func(i int) []byte { return fmt.Appendf(nil, "tenant/0001/table/0002/row/%d", i%977) },
		"versions of one": func(int) []byte { return []byte("the same key all the time") },
		"zeros":           func(i int) []byte { return make([]byte, 1+i%40) },
		"zeros, one byte": func(i int) []byte { return append(make([]byte, i%40), byte(i%3)) },
		"end in a word":   func(i int) []byte { return []byte("01234567abcdefgh!")[:1+i%17] },
		"deep":            func(i int) []byte { return append(make([]byte, 4096), byte(i), byte(i>>8)) },
	} {
		t.Run(name, func(t *testing.T) {
			table := New(Options{})
			var m model
			for i := range n {
				m.add(table, kv.Entry{Key: key(i), Seq: kv.SeqNum(i + 1), Kind: kv.KindDelete})
			}
			requireEntries(t, m.sorted(), all(table))
			r := table.order.mu.runs[0]
			require.True(t, slices.IsSortedFunc(r, table.arena.compare), "the words are the first ones again")
			require.Equal(t, n, cap(r), "allocated once")
		})
	}
}

// TestRunsStayFew requests the order after each Add.
func TestRunsStayFew(t *testing.T) {
	table := New(Options{})
	for i := range 2_000 {
		e := put(fmt.Sprint(i*7919%2_000), kv.SeqNum(i+1))
		table.Add(keyhash.Sum(e.Key), &e)
		table.NewIterator()
		sum := 0
		for j, r := range table.order.mu.runs {
			sum += len(r)
			require.True(t, j == 0 || len(table.order.mu.runs[j-1]) >= growth*len(r), "run %d after %d adds", j, i+1)
		}
		require.Equal(t, i+1, sum)
	}
	before := table.order.mu.runs
	table.NewIterator()
	require.Equal(t, len(before), len(table.order.mu.runs), "nothing new, nothing done")
}
