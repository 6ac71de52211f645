package mergeiter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// numbers are sources of numbers for a Tree. The word of a number is a fourth of it, so
// that words are equal often.
type numbers [][]uint64

func (n numbers) word(i int) uint64 {
	if len(n[i]) == 0 {
		return LastWord
	}
	return n[i][0] / 4
}

func (n numbers) Before(i, j int) bool {
	if len(n[i]) == 0 || len(n[j]) == 0 {
		return len(n[i]) > 0
	}
	return n[i][0] < n[j][0]
}

func TestTreeOrdersSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources := make(numbers, rapid.IntRange(1, 9).Draw(t, "sources"))
		number := rapid.Custom(func(t *rapid.T) uint64 {
			n := rapid.Uint64Range(0, 60).Draw(t, "number")
			if rapid.IntRange(0, 5).Draw(t, "large") == 0 {
				n = ^n
			}
			return n
		})
		want := rapid.SliceOfNDistinct(number, 0, 60, rapid.ID[uint64]).Draw(t, "numbers")
		slices.Sort(want)
		for _, n := range want {
			i := rapid.IntRange(0, len(sources)-1).Draw(t, "source")
			sources[i] = append(sources[i], n)
		}
		var tree Tree
		tree.Init(len(sources), sources)
		again := rapid.IntRange(0, len(want)).Draw(t, "begin again at")
		for n, number := range append(want, 0) {
			if n == 0 || n == again {
				tree.Clear()
				for i := range sources {
					tree.Enter(i, sources.word(i))
				}
			}
			w := tree.Winner()
			if n == len(want) {
				require.Empty(t, sources[w])
				break
			}
			require.Equal(t, number, sources[w][0])
			second := tree.Second()
			sources[w] = sources[w][1:]
			switch left := sources[w]; {
			case len(sources) == 1:
				require.Equal(t, -1, second)
			case n+1 < len(want) && (len(left) == 0 || left[0] != want[n+1]):
				require.Equal(t, want[n+1], sources[second][0])
			default:
				require.NotEqual(t, w, second)
			}
			tree.Replay(sources.word(w))
		}
	})
}

// The keys share long prefixes, which change on the way: the words that the merge orders
// the sources by begin at other places of the keys then. Some keys have several versions,
// more than tieLimit in all.
func TestMergeOrdersKeysUnderChangingPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefixes := []string{"", "tenant/a/orders/", "tenant/a/users/", "tenant/b/users/of/a/long/name/", "\xff\xff\xff\xff\xff\xff\xff\xff\xff"}
		var entries []kv.Entry
		for i := range rapid.IntRange(0, 600).Draw(t, "entries") {
			prefix := rapid.SampledFrom(prefixes).Draw(t, "prefix")
			key := fmt.Sprintf("%s%0*d", prefix, i%12, i*7919%97)
			entries = append(entries, put(key, kv.SeqNum(i+1)))
		}
		slices.SortFunc(entries, compareEntries)
		k := rapid.IntRange(2, 9).Draw(t, "sources")
		dealt := make([][]kv.Entry, k)
		run, at := rapid.IntRange(1, 50).Draw(t, "entries in a row"), 0
		for i, e := range entries {
			if i%run == 0 {
				at = rapid.IntRange(0, k-1).Draw(t, "source")
			}
			dealt[at] = append(dealt[at], e)
		}
		iterators := func() []kv.Iterator {
			its := make([]kv.Iterator, k)
			for i := range dealt {
				its[i] = newSlice(dealt[i]...)
			}
			return its
		}
		it := New(iterators()...)
		require.Equal(t, len(entries) > 0, it.First())
		requireEntries(t, entries, rest(it))
		require.Equal(t, len(entries) > 0, it.Last())
		requireEntries(t, reversed(entries), restBack(it))

		view := scanbatch.View{At: kv.MaxSeqNum}
		for _, reverse := range []bool{false, true} {
			want := visible(entries, view)
			if reverse {
				slices.Reverse(want)
			}
			requireEntries(t, want, shown(newVisible(view, kv.Range{}, reverse, iterators()...), 16))
		}
	})
}
