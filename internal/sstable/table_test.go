package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestEveryNumberOfEntriesRoundTrips(t *testing.T) {
	for _, n := range []int{1, 2, together - 1, together, together + 1, 2*together + 1, 100} {
		for _, blockBytes := range []int{1, 64, 512, 4096} {
			t.Run(fmt.Sprintf("%d entries, blocks of %d", n, blockBytes), func(t *testing.T) {
				requireTable(t, numbered(n, 20), WriterOptions{BlockBytes: blockBytes})
			})
		}
	}
}

func TestBlocksFilledToTheByteRoundTrip(t *testing.T) {
	for valueBytes := range 60 {
		requireTable(t, numbered(30, valueBytes), WriterOptions{BlockBytes: 512})
	}
}

func TestValuesOfAllLengthsRoundTrip(t *testing.T) {
	entries := numbered(12, 0)
	for i, n := range []int{0, 1, 127, 128, 4095, 4096, 16383, 16384, 1 << 16, 1<<20 - 1, 1 << 20, 3} {
		entries[i].Value = bytes.Repeat([]byte{byte(i)}, n)
	}
	requireTable(t, entries, WriterOptions{})
}

func TestKeysOfAllLengthsRoundTrip(t *testing.T) {
	var entries []kv.Entry
	for i, n := range []int{1, 127, 128, 4096, 16384, kv.MaxKeyBytes} {
		entries = append(entries, put(string(bytes.Repeat([]byte{'k'}, n)), "v", kv.SeqNum(i+1)))
	}
	requireTable(t, entries, WriterOptions{})
}

// Article 1 deleted a key by storing sixteen fixed bytes, so that a user could not store
// that value. Here the kind marks a tombstone.
func TestAnyValueIsAValue(t *testing.T) {
	marker := string([]byte{83, 76, 69, 7, 95, 21, 81, 27, 2, 104, 8, 100, 45, 109, 110, 1})
	entries := []kv.Entry{
		put("a", marker, 1), put("b", "", 2), del("c", 3), put("d", "\x00", 4), put(marker, marker, 5),
		put("\x00", "\xff", 6), put("\xff\xff", "\xff", kv.MaxSeqNum),
	}
	sortEntries(entries)
	requireTable(t, entries, WriterOptions{})
	requireTable(t, entries, WriterOptions{BlockBytes: 30})
}

func TestVersionsOfAKeyAcrossBlocks(t *testing.T) {
	for _, versions := range []int{2, 20, 300} {
		for _, around := range []bool{false, true} {
			var entries []kv.Entry
			if around {
				entries = append(entries, put("hot", "before", 7))
			}
			for i := range versions {
				seq := kv.SeqNum(10 * (versions - i))
				e := put("hot!", fmt.Sprint("version ", seq), seq)
				if i%5 == 3 {
					e = del("hot!", seq)
				}
				entries = append(entries, e)
			}
			if around {
				entries = append(entries, put("hot!!", "behind", 5))
			}
			requireTable(t, entries, WriterOptions{BlockBytes: 128})
		}
	}
}

func TestSeekIsRightAtEveryVersionOfABlockBoundary(t *testing.T) {
	var entries []kv.Entry
	for k := range 6 {
		for seq := kv.SeqNum(40); seq > 0; seq -= 2 {
			entries = append(entries, put(fmt.Sprint("key", k), fmt.Sprint(k, "/", seq), seq))
		}
	}
	f, _ := build(t, entries, WriterOptions{BlockBytes: 100})
	r := open(t, f, nil)
	require.Greater(t, r.index.blocks(), 20)
	for k := range 6 {
		for at := kv.SeqNum(0); at < 43; at++ {
			key := []byte(fmt.Sprint("key", k))
			got, err := get(r, key, at)
			require.NoError(t, err)
			require.Equal(t, oracle(entries, key, at), got, "%s at %d", key, at)
		}
	}
}

func TestExpiryIsKept(t *testing.T) {
	entries := numbered(20, 5)
	for i := range entries {
		entries[i].Expiry = uint64(i) * 1_000_000_007
	}
	entries[19].Expiry = 1<<64 - 1
	requireTable(t, entries, WriterOptions{BlockBytes: 64})
}

func TestRandomEntriesRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		requireTable(t, randomEntries(rng, 1+rng.IntN(150)), WriterOptions{BlockBytes: 1 + rng.IntN(400)})
	}
}

func TestRangeDeletesHideOlderVersions(t *testing.T) {
	entries := []kv.Entry{
		put("a", "1", 1),
		rangeDel("b", "f", 10),
		put("b", "younger", 12),
		put("b", "older", 3),
		put("c", "at the same number", 10),
		rangeDel("c", "e", 14),
		put("d", "1", 1),
		put("e", "15", 15),
		put("f", "not covered", 2),
		rangeDel("x", "zz", 4),
	}
	sortEntries(entries)
	requireTable(t, entries, WriterOptions{BlockBytes: 60})
	f, meta := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	require.Equal(t, []byte("zz"), meta.Largest, "a range reaches further than the last key")
	require.EqualValues(t, 3, meta.Deletes)
	require.Equal(t, 3, r.RangeTombstones().Len())

	// The file has no entry at "y", but a range tombstone that deletes it.
	got, err := get(r, []byte("y"), 9)
	require.NoError(t, err)
	require.Equal(t, result{done: true, kind: kv.KindRangeDelete, seq: 4}, got)
}

// A batch may put a key and delete ranges that begin there, all at one sequence number.
func TestRangeDeletesMayTieWithAPoint(t *testing.T) {
	for _, entries := range [][]kv.Entry{
		{rangeDel("k", "m", 5), put("k", "v", 5), put("k", "old", 2), put("l", "old", 1)},
		{put("k", "v", 5), rangeDel("k", "m", 5), put("k", "old", 2), put("l", "old", 1)},
		{rangeDel("k", "m", 5), rangeDel("k", "z", 5), del("k", 5), put("k", "old", 2)},
	} {
		for _, n := range []int{0, together - 2, together - 1, together} {
			all := append(numbered(n, 3)[:n:n], entries...)
			sortEntries(all[:n])
			for i := range n {
				all[i].Key = append([]byte("a"), all[i].Key...)
			}
			requireTable(t, all, WriterOptions{BlockBytes: 40})
			requireTable(t, all, WriterOptions{})
		}
	}
}
