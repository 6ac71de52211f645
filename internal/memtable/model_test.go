package memtable

import (
	"bytes"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// genKey draws from a tiny space: shared prefixes longer than a word, extreme
// bytes, keys that differ only in trailing zeros.
func genKey() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		prefix := rapid.SampledFrom([]string{"", "p", "12345678", "shared/prefix/"}).Draw(t, "prefix")
		tail := rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 0x01, 'a', 0xff}), 0, 3).Draw(t, "tail")
		if prefix == "" && len(tail) == 0 {
			return []byte{0x00}
		}
		return append([]byte(prefix), tail...)
	})
}

func genValue(chunkBytes int) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.OneOf(rapid.IntRange(0, 8), rapid.IntRange(0, 2*chunkBytes)).Draw(t, "bytes")
		return bytes.Repeat([]byte{byte(n)}, n)
	})
}

// TestTableIsASortedSliceOfVersions drives a table and a model with random Adds,
// reads at random versions, iterators that stay open and walk both ways, and a
// Seal at the end.
func TestTableIsASortedSliceOfVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.SampledFrom([]int{64, 256, DefaultChunkBytes}).Draw(t, "chunk")
		table := New(Options{ChunkBytes: chunk})
		var m model
		seq := kv.SeqNum(rapid.IntRange(0, 3).Draw(t, "first"))

		type open struct {
			it   kv.Iterator
			want []kv.Entry
		}
		var iterators []open
		type snapshot struct {
			ranges *kv.RangeTombstones
			want   []kv.Entry
		}
		var snapshots []snapshot

		add := func(t *rapid.T) {
			key := genKey().Draw(t, "key")
			// A batch gives its number to several entries, once to each key.
			written := slices.ContainsFunc(m, func(e kv.Entry) bool {
				return e.Seq == seq && e.Kind != kv.KindRangeDelete && bytes.Equal(e.Key, key)
			})
			if seq == 0 || written || rapid.Bool().Draw(t, "next batch") {
				seq++
			}
			e := kv.Entry{Key: key, Seq: seq, Kind: kv.KindPut}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				e.Kind = kv.KindDelete
			case 1:
				e.Kind, e.Value = kv.KindRangeDelete, genKey().Draw(t, "end")
				if c := bytes.Compare(e.Key, e.Value); c > 0 {
					e.Key, e.Value = e.Value, e.Key
				} else if c == 0 {
					e.Value = append(bytes.Clone(e.Value), 0)
				}
			default:
				e.Value = genValue(min(chunk, 256)).Draw(t, "value")
				e.Expiry = rapid.SampledFrom([]uint64{0, 1, 1 << 63}).Draw(t, "expiry")
			}
			m.add(table, e)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": add,
			"add many": func(t *rapid.T) {
				for range rapid.IntRange(1, 60).Draw(t, "count") {
					add(t)
				}
			},
			"get": func(t *rapid.T) {
				key := genKey().Draw(t, "key")
				at := kv.SeqNum(rapid.IntRange(0, int(seq)+1).Draw(t, "at"))
				var got kv.Entry
				want, ok := m.get(key, at)
				require.Equal(t, ok, table.Get(keyhash.Sum(key), key, at, &got))
				requireEntries(t, []kv.Entry{want}, []kv.Entry{got})
			},
			"open iterator": func(t *rapid.T) {
				if len(iterators) < 8 {
					iterators = append(iterators, open{table.NewIterator(), m.sorted()})
				}
			},
			"cover": func(t *rapid.T) {
				key := genKey().Draw(t, "key")
				at := kv.SeqNum(rapid.IntRange(0, int(seq)+1).Draw(t, "at"))
				require.Equal(t, m.cover(key, at), table.Cover(key, at))
			},
			"take the range tombstones": func(t *rapid.T) {
				if len(snapshots) < 8 {
					snapshots = append(snapshots, snapshot{table.RangeTombstones(), m.rangeTombstones()})
				}
			},
			"written since": func(t *rapid.T) {
				at := kv.SeqNum(rapid.IntRange(0, int(seq)+1).Draw(t, "since"))
				want := m.since(at)
				requireEntries(t, want, writtenSince(table, at, len(m)+1))
				if len(want) > 0 {
					limit := rapid.IntRange(1, len(want)).Draw(t, "limit")
					requireEntries(t, want[:limit], writtenSince(table, at, limit))
				}
			},
			"walk an open iterator": func(t *rapid.T) {
				if len(iterators) == 0 {
					t.Skip("none open")
				}
				o := iterators[rapid.IntRange(0, len(iterators)-1).Draw(t, "iterator")]
				require.Equal(t, len(o.want) > 0, o.it.First())
				requireEntries(t, o.want, rest(o.it))
				require.Equal(t, len(o.want) > 0, o.it.Last())
				requireEntries(t, reversed(o.want), restBackward(o.it))
			},
			"seek": func(t *rapid.T) {
				it := table.NewIterator()
				require.False(t, it.Valid())
				want := m.sorted()
				for range rapid.IntRange(1, 4).Draw(t, "seeks") {
					key := genKey().Draw(t, "key")
					from := sort.Search(len(want), func(i int) bool { return bytes.Compare(want[i].Key, key) >= 0 })
					require.Equal(t, from < len(want), it.SeekGE(key))
					requireEntries(t, want[from:], rest(it))
					require.Equal(t, from > 0, it.SeekLT(key))
					requireEntries(t, reversed(want[:from]), restBackward(it))
				}
				require.NoError(t, it.Err())
				require.NoError(t, it.Close())
				require.False(t, it.Valid())
				require.False(t, it.Next())
				require.False(t, it.Prev())
				require.NoError(t, it.Close())
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(m), table.Len())
			},
		})
		table.Seal()
		requireEntries(t, m.sorted(), all(table))
		require.LessOrEqual(t, len(table.order.mu.runs), 1, "a sealed table is one run")
		for _, o := range iterators {
			o.it.First()
			requireEntries(t, o.want, rest(o.it))
		}
		for _, s := range snapshots {
			require.ElementsMatch(t, s.want, s.ranges.All())
		}
	})
}
