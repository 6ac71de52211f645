package engine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// Keys of which each is the beginning of another, with extreme bytes, and with a
// prefix longer than a word: the words of many are the same. No key is empty: a
// store refuses the empty key, and the merge relies on that.
func TestMergeOrdersBatches(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) string {
		prefix := rapid.SampledFrom([]string{"", "", "prefix", "a much longer prefix"}).Draw(t, "prefix")
		rest := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xff}), 0, 12).Draw(t, "rest")
		return prefix + string(rest)
	}).Filter(func(key string) bool { return key != "" })
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, 9).Draw(t, "sources")
		size := rapid.IntRange(1, 8).Draw(t, "batch")
		m := newMerge(k)
		m.reverse = rapid.Bool().Draw(t, "reverse")
		want := rapid.SliceOfNDistinct(key, 0, 80, rapid.ID[string]).Draw(t, "keys")
		dealt := make([][]string, k)
		order := func(keys []string) {
			slices.Sort(keys)
			if m.reverse {
				slices.Reverse(keys)
			}
		}
		order(want)
		for _, key := range want {
			i := rapid.IntRange(0, k-1).Draw(t, "source")
			dealt[i] = append(dealt[i], key)
		}
		take := func(i int) {
			b := &scanbatch.Batch{}
			b.Reset(size, 1<<10, false)
			for !b.Full() && len(dealt[i]) > 0 {
				b.Add(&kv.Entry{Key: []byte(dealt[i][0])}, false)
				dealt[i] = dealt[i][1:]
			}
			m.take(i, b.Items)
		}
		for i := range k {
			take(i)
		}
		m.begin()
		for _, key := range want {
			item := m.winner()
			require.NotNil(t, item)
			require.Equal(t, key, string(item.Key))
			i := m.tree.Winner()
			if m.sources[i].step() {
				m.advance()
			} else {
				take(i)
				m.begin()
			}
		}
		require.Nil(t, m.winner())
	})
}
