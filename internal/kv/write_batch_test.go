package kv

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNormalizeKeepsTheLastOperationOnAKey(t *testing.T) {
	var b WriteBatch
	b.Put([]byte("a"), []byte("1"))
	b.Put([]byte("b"), []byte("2"))
	b.Delete([]byte("a"))
	b.Add(Op{Kind: KindRangeDelete, Key: []byte("b"), Value: []byte("c")})
	b.Put([]byte("bb"), []byte("3"))
	b.Normalize(DefaultLimits)
	var got []string
	for _, op := range b.Ops() {
		got = append(got, fmt.Sprintf("%s %s", op.Kind, op.Key))
	}
	assert.Equal(t, []string{"delete a", "range-delete b", "put bb"}, got)
	assert.Equal(t, 1+2+3, b.Bytes())
}

// Applying a normalized batch as if all operations happened at once gives the same
// result as applying the original operations one after the other.
func TestNormalizeMeansTheSame(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "c", "d"})
	rapid.Check(t, func(t *rapid.T) {
		var b WriteBatch
		sequential := map[string]string{"a": "old", "b": "old", "c": "old"}
		for i := range rapid.IntRange(1, 12).Draw(t, "ops") {
			k := key.Draw(t, "key")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				v := fmt.Sprint(i)
				b.Put([]byte(k), []byte(v))
				sequential[k] = v
			case 1:
				b.Delete([]byte(k))
				delete(sequential, k)
			case 2:
				end := rapid.SampledFrom([]string{"", "a", "bx", "cx", "dx"}).Draw(t, "end")
				k = rapid.SampledFrom([]string{"", k}).Draw(t, "start")
				b.DeleteRange([]byte(k), []byte(end))
				for have := range sequential {
					if have >= k && (have < end || end == "") {
						delete(sequential, have)
					}
				}
			}
		}
		b.Normalize(DefaultLimits)
		unbounded := 0
		atOnce := map[string]string{"a": "old", "b": "old", "c": "old"}
		for _, op := range b.Ops() { // range deletes hide only older entries
			if op.Kind == KindRangeDelete {
				require.NotEmpty(t, op.Key)
				require.Less(t, string(op.Key), string(op.Value), "what the log and the tables can hold")
				if len(op.Value) > DefaultLimits.KeyBytes {
					unbounded++
				}
				for have := range atOnce {
					if (Range{op.Key, op.Value}).Contains([]byte(have)) {
						delete(atOnce, have)
					}
				}
			}
		}
		seen := map[string]bool{}
		size := 0
		for _, op := range b.Ops() {
			size += op.Size()
			if op.Kind == KindRangeDelete {
				continue
			}
			if seen[string(op.Key)] {
				t.Fatalf("two operations on %q", op.Key)
			}
			seen[string(op.Key)] = true
			if op.Kind == KindPut {
				atOnce[string(op.Key)] = string(op.Value)
			} else {
				delete(atOnce, string(op.Key))
			}
		}
		delete(atOnce, string(DefaultLimits.aboveAllKeys())) // of a batch from which every operation was dropped
		require.LessOrEqual(t, unbounded, 1, "the long end is stored once")
		require.NotZero(t, b.Len())
		require.Equal(t, sequential, atOnce)
		require.Equal(t, size, b.Bytes())
	})
}

func TestBatchChecks(t *testing.T) {
	limits := Limits{KeyBytes: 4, ValueBytes: 4, BatchOps: 2, BatchBytes: 12}
	require.NoError(t, limits.Validate())
	put := func(key, value string) Op { return Op{Kind: KindPut, Key: []byte(key), Value: []byte(value)} }
	for _, c := range []struct {
		name string
		ops  []Op
		want error
	}{
		{"empty batch", nil, ErrInvalidArgument},
		{"at every limit", []Op{put("abcd", "12"), put("abce", "12")}, nil},
		{"one operation too many", []Op{put("a", ""), put("b", ""), put("c", "")}, ErrTooLarge},
		{"one byte too many", []Op{put("abcd", "123"), put("abce", "12")}, ErrTooLarge},
		{"key too long", []Op{put("abcde", "")}, ErrTooLarge},
		{"value too long", []Op{put("a", "12345")}, ErrTooLarge},
		{"empty key", []Op{put("", "1")}, ErrInvalidArgument},
		{"empty value", []Op{put("a", "")}, nil},
		{"no kind", []Op{{Key: []byte("a")}}, ErrInvalidArgument},
		{"empty range", []Op{{Kind: KindRangeDelete, Key: []byte("b"), Value: []byte("b")}}, nil},
		{"range of all keys", []Op{{Kind: KindRangeDelete}}, nil},
		{"start of a range too long", []Op{{Kind: KindRangeDelete, Key: []byte("abcde")}}, ErrTooLarge},
		{"end of a range too long", []Op{{Kind: KindRangeDelete, Value: []byte("abcde")}}, ErrTooLarge},
		{"range", []Op{{Kind: KindRangeDelete, Key: []byte("a"), Value: []byte("b")}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b WriteBatch
			for _, op := range c.ops {
				b.Add(op)
			}
			assert.ErrorIs(t, b.Check(limits), c.want)
			b.Reset()
			assert.Zero(t, b.Len()+b.Bytes())
		})
	}
	assert.ErrorIs(t, Limits{}.Validate(), ErrInvalidArgument)
}

// An unbounded range ends after every key, whatever the limits are, so the one key that
// would not sort before its end is reserved.
func TestAnUnboundedRangeEndsAfterEveryKey(t *testing.T) {
	for _, keyBytes := range []int{1, DefaultLimits.KeyBytes, MaxKeyBytes - 1, MaxKeyBytes} {
		limits := Limits{KeyBytes: keyBytes}
		var b WriteBatch
		b.DeleteRange(nil, nil)
		b.Normalize(limits)
		end := b.Ops()[0].Value
		require.LessOrEqual(t, len(end), MaxKeyBytes, "what the formats hold")
		last := bytes.Repeat([]byte{0xff}, keyBytes)
		if keyBytes == MaxKeyBytes {
			require.ErrorIs(t, limits.CheckKey(last), ErrInvalidArgument)
			last[keyBytes-1] = 0xfe
		}
		require.NoError(t, limits.CheckKey(last))
		require.Less(t, string(last), string(end))
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		prefix, end string
	}{{"a", "b"}, {"a\xff", "b"}, {"", ""}, {"\xff\xff", ""}, {"a\x00", "a\x01"}} {
		r := PrefixRange([]byte(c.prefix))
		assert.Equal(t, c.prefix, string(r.Start))
		assert.Equal(t, c.end, string(r.End), "end of prefix %q", c.prefix)
	}
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 3).Draw(t, "prefix")
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 4).Draw(t, "key")
		if got, want := PrefixRange(prefix).Contains(key), bytes.HasPrefix(key, prefix); got != want {
			t.Fatalf("PrefixRange(%x).Contains(%x) = %v", prefix, key, got)
		}
	})
}

func TestEntriesAreOrderedByKeyThenNewestFirst(t *testing.T) {
	assert.Negative(t, Compare([]byte("a"), 1, []byte("b"), 9))
	assert.Negative(t, Compare([]byte("a"), 9, []byte("a"), 1))
	assert.Positive(t, Compare([]byte("a"), 1, []byte("a"), 9))
	assert.Zero(t, Compare([]byte("a"), 1, []byte("a"), 1))
	seq, kind := SplitTrailer(Trailer(MaxSeqNum, KindDelete))
	assert.Equal(t, MaxSeqNum, seq)
	assert.Equal(t, KindDelete, kind)
	assert.False(t, Kind(0).Valid(), "zero is never a kind")
}

func TestDurabilityNames(t *testing.T) {
	for _, d := range []Durability{DurabilityDefault, DurabilityMemory, DurabilityBuffered, DurabilitySync} {
		got, err := ParseDurability(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, got)
	}
	_, err := ParseDurability("eventually")
	assert.ErrorIs(t, err, ErrInvalidArgument)
	assert.False(t, Durability(4).Valid())
}

func TestErrorsMatchTheirSentinels(t *testing.T) {
	err := fmt.Errorf("read: %w", Corruptf("000012.sst", 4096, "checksum is %d", 1))
	assert.ErrorIs(t, err, ErrCorrupt)
	assert.ErrorContains(t, err, "corruption in 000012.sst at offset 4096: checksum is 1")
	assert.ErrorIs(t, &OverloadError{Reason: "inbox_full"}, ErrOverloaded)
	assert.NotErrorIs(t, ErrUnsupportedVersion, ErrCorrupt, "an unknown version is not damage")
}

// A range delete counts once for each copy that the store keeps, with what it needs in a memtable. Normalize
// makes no batch take more.
func TestRangeDeletesTakeTheirCopies(t *testing.T) {
	limits := DefaultLimits
	limits.RangeCopies = 8
	var b WriteBatch
	b.Put([]byte("key"), []byte("value"))
	assert.Equal(t, 8, b.Takes(limits))
	b.DeleteRange([]byte("a"), []byte("bb"))
	assert.Equal(t, 8+8*(3+RangeDeleteBytes), b.Takes(limits))
	assert.Equal(t, 8+3+RangeDeleteBytes, b.Takes(DefaultLimits))
	b.DeleteRange([]byte("c"), nil)
	b.DeleteRange(nil, nil)
	before := b.Takes(limits)
	require.Equal(t, 8+8*(4+DefaultLimits.KeyBytes+1+3*RangeDeleteBytes), before)
	b.Normalize(limits)
	assert.Equal(t, 2, b.Len(), "the unbounded ones become one, which covers the put")
	assert.LessOrEqual(t, b.Takes(limits), before)

	limits.RangeCopies = 64
	for b.Reset(); b.Takes(limits) <= limits.MostTaken(); b.DeleteRange([]byte("a"), []byte("b")) {
		if b.Len() > 0 {
			require.NoError(t, b.Check(limits))
		}
	}
	require.ErrorIs(t, b.Check(limits), ErrTooLarge)
	require.NoError(t, b.Check(DefaultLimits), "in a store of one partition it is smaller")
}
