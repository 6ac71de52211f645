package sstable

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// Compare a file with the sorted slice of its entries: any entries, any
// options, any walk.
func TestModel(t *testing.T) {
	key := rapid.Custom(func(t *rapid.T) []byte {
		prefix := rapid.SampledFrom([]string{"", "p", "prefix/", "prefix/prefix/\xff"}).Draw(t, "prefix")
		return append([]byte(prefix), rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "rest")...)
	})
	entry := rapid.Custom(func(t *rapid.T) kv.Entry {
		e := kv.Entry{
			Key:    key.Draw(t, "key"),
			Seq:    kv.SeqNum(rapid.Uint64Range(1, 12).Draw(t, "seq")),
			Kind:   rapid.SampledFrom([]kv.Kind{kv.KindPut, kv.KindPut, kv.KindPut, kv.KindDelete, kv.KindRangeDelete}).Draw(t, "kind"),
			Expiry: rapid.SampledFrom([]uint64{0, 0, 1, 1 << 40}).Draw(t, "expiry"),
		}
		switch e.Kind {
		case kv.KindPut:
			e.Value = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value")
		case kv.KindRangeDelete:
			e.Expiry = 0
			e.Value = append(bytes.Clone(e.Key), 1)
			if other := key.Draw(t, "end"); bytes.Compare(e.Key, other) < 0 {
				e.Value = other
			}
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(entry, 1, 120).Draw(t, "entries")
		sortEntries(entries)
		entries = slices.CompactFunc(entries, func(a, b kv.Entry) bool {
			return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) == 0
		})
		f := &bytesFile{}
		w := NewWriter(f, testID, WriterOptions{
			BlockBytes:       rapid.IntRange(1, 600).Draw(t, "block bytes"),
			FilterBitsPerKey: rapid.IntRange(0, 20).Draw(t, "filter bits"),
		})
		for i := range entries {
			require.NoError(t, w.Add(&entries[i]))
		}
		meta, err := w.Finish()
		require.NoError(t, err)
		cache := NewCache(int64(rapid.SampledFrom([]int{0, 1000, 1 << 20}).Draw(t, "cache")))
		r, err := Open(f, testID, cache)
		require.NoError(t, err)
		require.Equal(t, meta, r.Meta())
		require.NoError(t, r.Verify(t.Context(), nil))

		it := r.NewIterator(IterOptions{
			FillCache: rapid.Bool().Draw(t, "fill"),
			Readahead: rapid.IntRange(0, 2000).Draw(t, "readahead"),
		})
		standing := len(entries) // position in the model; len(entries) is no entry
		walk := nowhere
		someKey := func(t *rapid.T) []byte {
			if rapid.Bool().Draw(t, "present") {
				return entries[rapid.IntRange(0, len(entries)-1).Draw(t, "index")].Key
			}
			return key.Draw(t, "any key")
		}
		check := func(ok bool) {
			require.NoError(t, it.Err())
			require.Equal(t, standing < len(entries), ok)
			require.Equal(t, ok, it.Valid())
			if ok {
				requireEntry(t, &entries[standing], it.Entry())
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"First": func(*rapid.T) { standing, walk = 0, forward; check(it.First()) },
			"Last":  func(*rapid.T) { standing, walk = len(entries)-1, backward; check(it.Last()) },
			"SeekGE": func(t *rapid.T) {
				k := someKey(t)
				standing = slices.IndexFunc(entries, func(e kv.Entry) bool { return bytes.Compare(e.Key, k) >= 0 })
				if standing < 0 {
					standing = len(entries)
				}
				walk = forward
				check(it.SeekGE(k))
			},
			"SeekLT": func(t *rapid.T) {
				k := someKey(t)
				standing = len(entries)
				for i := range entries {
					if bytes.Compare(entries[i].Key, k) < 0 {
						standing = i
					}
				}
				walk = backward
				check(it.SeekLT(k))
			},
			"go on": func(*rapid.T) {
				switch {
				case walk == forward:
					standing = min(standing+1, len(entries))
					check(it.Next())
				case standing == 0 || standing == len(entries):
					standing = len(entries)
					check(it.Prev())
				default:
					standing--
					check(it.Prev())
				}
			},
			"Get": func(t *rapid.T) {
				q := query(someKey(t), kv.SeqNum(rapid.Uint64Range(0, 13).Draw(t, "at")))
				r.Get(&q)
				require.NoError(t, q.Err)
				require.Equal(t, oracle(entries, q.Key, q.At), resultOf(&q))
			},
			"GetBatch": func(t *rapid.T) {
				qs := make([]Query, rapid.IntRange(0, 20).Draw(t, "n"))
				for i := range qs {
					qs[i] = query(someKey(t), kv.SeqNum(rapid.Uint64Range(0, 13).Draw(t, "at")))
				}
				getBatch(r, qs)
				for i := range qs {
					require.NoError(t, qs[i].Err)
					require.Equal(t, oracle(entries, qs[i].Key, qs[i].At), resultOf(&qs[i]))
				}
			},
		})
		require.NoError(t, it.Close())
		require.NoError(t, r.Close())
	})
}
