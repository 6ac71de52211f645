package sstable

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestGetCachedAnswersFromMemoryAlone(t *testing.T) {
	entries := withPointers(sweepEntries())
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	r := open(t, f, NewCache(1<<20))
	f.takeReads()
	for _, cached := range []bool{false, true} {
		for _, together := range []int{1, 7, 100} { // 100 are more than one pass handles
			qs := questions(entries)
			asks := asksOf(r, qs)
			for first := 0; first < len(asks); first += together {
				GetCached(asks[first:min(first+together, len(asks))])
			}
			require.Empty(t, f.takeReads())
			missing := 0
			for i := range asks {
				q := &qs[i]
				require.NoError(t, q.Err)
				if asks[i].Missing {
					missing++
					require.Equal(t, query(q.Key, q.At), *q, "a query that is not answered is as it was")
				}
				want := query(q.Key, q.At)
				r.Get(&want)
				if cached {
					require.Equal(t, want.Apart, asks[i].Missing, "key %q at %d", q.Key, q.At)
				}
				if !asks[i].Missing {
					require.Equal(t, want, *q)
				}
			}
			if !cached {
				r.cache.evict()
			}
			f.takeReads()
			require.Positive(t, missing)
		}
		getBatch(r, questions(entries)) // fills the cache
		f.takeReads()
	}
}

// One batch may search many files: each block is still read once, and damage in one
// file fails nothing in another.
func TestGetBatchAsksManyFiles(t *testing.T) {
	const files = 5
	entries := numbered(400, 100)
	cache := NewCache(16 << 20)
	var asks []Ask
	var qs [files * 100]Query
	var disks [files]*bytesFile
	for i := range disks {
		part := entries[i*len(entries)/files:][:len(entries)/files]
		id := kv.FileID{Partition: uint32(i % 2), Num: kv.FileNum(1 + i/2)}
		disks[i] = &bytesFile{}
		w := NewWriter(disks[i], id, WriterOptions{BlockBytes: 512})
		for j := range part {
			require.NoError(t, w.Add(&part[j]))
		}
		_, err := w.Finish()
		require.NoError(t, err)
		r, err := Open(disks[i], id, cache)
		require.NoError(t, err)
		disks[i].takeReads()
		for j := range 100 {
			at := (i*100 + j) * 37 % len(qs) // the files alternate
			qs[at] = query(part[j*7%len(part)].Key, kv.MaxSeqNum)
			asks = append(asks, Ask{Reader: r, Query: &qs[at]})
		}
	}
	disks[3].onRead = func([]byte, int64) error { return fmt.Errorf("broken") }
	GetBatch(asks)
	for i := range asks {
		q := asks[i].Query
		if asks[i].Reader.file == disks[3] {
			require.ErrorContains(t, q.Err, "broken")
			continue
		}
		require.NoError(t, q.Err)
		require.Equal(t, oracleAt(entries, q.Key), resultOf(q))
	}
	for i, f := range disks {
		if reads := f.takeReads(); i != 3 {
			require.Len(t, reads, 1, "file %d: all of it by one read", i)
		}
	}
}
