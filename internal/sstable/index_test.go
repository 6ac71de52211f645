package sstable

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestSeparatorLiesBetweenAndIsShort(t *testing.T) {
	for _, test := range []struct{ last, next, want string }{
		{"a", "b", "a"},
		{"a", "c", "b"},
		{"abcdef", "abzdef", "abz"},
		{"abc", "abcd", "abc"},
		{"abcx", "abd", "abcx"},
		{"abcx", "abe", "abd"},
		{"a\xff\xff", "b", "a\xff\xff"},
		{"a\xff", "b\x00", "b"},
		{"key00999", "key01000", "key01"},
	} {
		require.Equal(t, test.want, string(appendSeparator(nil, []byte(test.last), []byte(test.next))), "%q, %q", test.last, test.next)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	key := func() []byte {
		b := make([]byte, 1+rng.IntN(4))
		for i := range b {
			b[i] = "\x00\x01a\xfe\xff"[rng.IntN(5)]
		}
		return b
	}
	for range 20_000 {
		last, next := key(), key()
		if bytes.Compare(last, next) < 0 {
			s := appendSeparator(nil, last, next)
			require.True(t, bytes.Compare(last, s) <= 0 && bytes.Compare(s, next) < 0, "%q <= %q < %q", last, s, next)
			require.LessOrEqual(t, len(s), max(len(last), len(next)))
		}
	}
}

func TestIndexFindsTheFirstSeparatorNotBefore(t *testing.T) {
	type separator struct {
		key string
		seq kv.SeqNum
	}
	for _, separators := range [][]separator{
		{{"", 0}},
		{{"a", 0}},
		{{"\xff\xff\xff\xff\xff\xff\xff\xff", 0}},
		{{"\xff\xff\xff\xff\xff\xff\xff\xfe", 0}, {"\xff\xff\xff\xff\xff\xff\xff\xff", 0}},
		{{"a", 9}, {"a", 5}, {"a", 0}},
		{{"common", 0}, {"common1", 0}, {"common12345678", 7}, {"common12345678", 3}, {"common123456789", 0}, {"common2", 0}},
		{{"", 0}, {"\x00", 0}, {"\x00\x00", 0}, {"\x00\x00\x00", 0}, {"\x01", 0}},
		{{"12345678a", 0}, {"12345678b", 0}, {"12345678b\x00", 0}, {"12345679", 0}},
	} {
		var b indexBuilder
		const length = 100
		for _, s := range separators {
			b.keys = append(b.keys, s.key...)
			b.add(s.seq, length, 1)
		}
		x, ok := parseIndex(b.appendTo(nil), uint64(length*len(separators)))
		require.True(t, ok)
		require.Equal(t, len(separators), x.blocks())
		for _, s := range separators {
			for _, key := range []string{s.key, s.key + "\x00", s.key + "\xff", s.key + strings.Repeat("\xff", 8), s.key[:len(s.key)/2], "", "zzz", "comm", "commop"} {
				for seq := range kv.SeqNum(11) {
					want := 0
					for want < len(separators) && kv.Compare([]byte(separators[want].key), separators[want].seq, []byte(key), seq) < 0 {
						want++
					}
					require.Equal(t, want, x.find([]byte(key), seq), "%q/%d in %v", key, seq, separators)
				}
			}
		}
	}
}

func TestIndexFindsAmongManySeparators(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, mask := range []uint64{
		1<<64 - 1,             // spread evenly
		0xff00_0000_0000_000f, // in clumps
		0x0303_0303_0303_0303,
		0x8000_0000_0000_03ff, // in two
		0x03ff,                // fewer values than there may be starts
	} {
		for _, n := range []int{0, 1, 2, 3, 1000} {
			numbers := []uint64{0, mask}
			for range n {
				numbers = append(numbers, rng.Uint64()&mask)
			}
			slices.Sort(numbers)
			numbers = slices.Compact(numbers)
			var b indexBuilder
			for _, n := range numbers {
				b.keys = binary.BigEndian.AppendUint64(b.keys, n)
				b.add(0, 100, 1)
			}
			x, ok := parseIndex(b.appendTo(nil), uint64(100*len(numbers)))
			require.True(t, ok)
			require.LessOrEqual(t, len(x.starts), 2*x.blocks()+1)
			for _, n := range numbers {
				for _, n := range []uint64{n - 1, n, n + 1, rng.Uint64()} {
					want, _ := slices.BinarySearch(numbers, n)
					require.Equal(t, want, x.find(binary.BigEndian.AppendUint64(nil, n), kv.MaxSeqNum), "%x", n)
				}
			}
		}
	}
}

func TestRangesCoverWhatTheySay(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var tombstones []kv.Entry
		for i := range 1 + rng.IntN(20) {
			start := byte(rng.IntN(40))
			end := start + 1 + byte(rng.IntN(1+rng.IntN(40)))
			tombstones = append(tombstones, rangeDel(string(rune('0'+start)), string(rune('0'+end)), kv.SeqNum(1+i/2)))
		}
		sortEntries(tombstones)
		r, ok := parseRanges(appendRanges(nil, tombstones))
		require.True(t, ok)
		requireSameEntries(t, tombstones, r.All())
		for c := '/'; c < '0'+90; c++ {
			for at := kv.SeqNum(0); at < 12; at++ {
				key := []byte(string(c))
				if want, got := oracle(tombstones, key, at).seq, r.Cover(key, at); want != got {
					require.Equal(t, want, got, "key %q at %d", key, at)
				}
			}
		}
	}
}
