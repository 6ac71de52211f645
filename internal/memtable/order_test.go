package memtable

import (
	"bytes"
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
			require.True(t, slices.IsSortedFunc(r, table.arena.compare), "the words are those after the prefix again")
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

// TestKeysThatShareLessAndLess adds keys that share an ever shorter prefix, one byte or
// several shorter each time, and opens an iterator after each step. It expects each
// iterator to have what was there when it was opened, and that words are read again a
// bounded number of times.
func TestKeysThatShareLessAndLess(t *testing.T) {
	testsize.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, step := range []int{1, 3, 40} {
		table := New(Options{})
		var m model
		common := bytes.Repeat([]byte("m"), 120)
		type opened struct {
			it   kv.Iterator
			want []kv.Entry
		}
		var open []opened
		for n := len(common); n >= 0; n -= step {
			for i := range 5 {
				key := slices.Concat(common[:n], []byte{"lmn"[rng.IntN(3)], byte(i)}, common[:rng.IntN(12)])
				m.add(table, kv.Entry{Key: key[:min(len(key), 1+rng.IntN(200))], Seq: kv.SeqNum(len(m) + 1), Kind: kv.KindDelete})
			}
			open = append(open, opened{table.NewIterator(), m.sorted()})
		}
		for _, o := range open {
			o.it.First()
			requireEntries(t, o.want, rest(o.it))
			for range 20 {
				from := slices.Concat(common[:rng.IntN(len(common))], []byte{"alnmz"[rng.IntN(5)]}, common[:rng.IntN(9)])
				at, _ := slices.BinarySearchFunc(o.want, from, func(e kv.Entry, key []byte) int { return bytes.Compare(e.Key, key) })
				it := newIterator(&table.arena, o.it.(*iterator).sorted)
				it.SeekGE(from)
				requireEntries(t, o.want[at:], rest(it))
				it.SeekLT(from)
				requireEntries(t, reversed(o.want[:at]), restBackward(it))
			}
		}
		require.LessOrEqual(t, table.order.mu.reread, (rereads+2)*len(m))
	}
}
