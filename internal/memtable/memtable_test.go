package memtable

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

func TestGetFindsTheNewestVersionUpToANumber(t *testing.T) {
	table := New(Options{})
	for _, e := range []kv.Entry{put("a", 2), put("b", 3), del("a", 5), put("a", 9)} {
		table.Add(keyhash.Sum(e.Key), &e)
	}
	for at, want := range map[kv.SeqNum]kv.Entry{
		2: put("a", 2), 4: put("a", 2), 5: del("a", 5), 8: del("a", 5), 9: put("a", 9), kv.MaxSeqNum: put("a", 9),
	} {
		got, ok := get(table, "a", at)
		require.True(t, ok)
		assert.Equal(t, want, got, "at %d", at)
	}
	for _, absent := range []struct {
		key string
		at  kv.SeqNum
	}{{"a", 1}, {"a", 0}, {"b", 2}, {"c", kv.MaxSeqNum}} {
		_, ok := get(table, absent.key, absent.at)
		assert.False(t, ok, "%v", absent)
	}
}

func TestAnEmptyTableHasNothing(t *testing.T) {
	table := New(Options{})
	_, ok := get(table, "a", kv.MaxSeqNum)
	assert.False(t, ok)
	it := table.NewIterator()
	assert.False(t, it.First())
	assert.False(t, it.SeekGE([]byte("a")))
	assert.False(t, it.Next())
	it = table.NewIterator()
	assert.False(t, it.Prev())
	assert.False(t, it.Last())
	assert.False(t, it.SeekLT([]byte("a")))
	assert.False(t, it.Prev())
	assert.Zero(t, table.Cover([]byte("a"), kv.MaxSeqNum))
	assert.Zero(t, table.RangeTombstones().Len())
	table.WrittenSince(0, func(*kv.Entry) bool { return assert.Fail(t, "an entry of nowhere") })
	assert.Zero(t, table.Len())
	assert.Zero(t, table.Bytes())
	assert.Zero(t, table.MinSeq())
	assert.Zero(t, table.MaxSeq())
}

func TestAnEmptyValueIsNotATombstone(t *testing.T) {
	table := New(Options{})
	table.Add(keyhash.Sum([]byte("a")), &kv.Entry{Key: []byte("a"), Value: []byte{}, Seq: 1, Kind: kv.KindPut})
	got, ok := get(table, "a", 1)
	require.True(t, ok)
	assert.Equal(t, kv.KindPut, got.Kind)
	assert.NotNil(t, got.Value)
	assert.Empty(t, got.Value)
}

func TestAddCopiesItsSlices(t *testing.T) {
	for _, valueBytes := range []int{3, 1000} { // in the record, in a blob
		table := New(Options{ChunkBytes: 64})
		key, value := []byte("key"), bytes.Repeat([]byte("v"), valueBytes)
		table.Add(keyhash.Sum(key), &kv.Entry{Key: key, Value: value, Seq: 1, Kind: kv.KindPut})
		key[0], value[0] = '!', '!'
		got, ok := get(table, "key", 1)
		require.True(t, ok)
		assert.Equal(t, bytes.Repeat([]byte("v"), valueBytes), got.Value)
	}
}

// TestBorrowedSlicesCannotGrowIntoTheArena: appending to a borrowed slice must
// copy it, or it would overwrite the next record.
func TestBorrowedSlicesCannotGrowIntoTheArena(t *testing.T) {
	for _, value := range []string{"v", string(bytes.Repeat([]byte("v"), 100))} {
		table := New(Options{ChunkBytes: 256})
		a := kv.Entry{Key: []byte("a"), Value: []byte(value), Seq: 1, Kind: kv.KindPut}
		table.Add(keyhash.Sum(a.Key), &a)
		b := put("b", 2)
		table.Add(keyhash.Sum(b.Key), &b)
		got, _ := get(table, "a", 1)
		_ = append(got.Key, "!!!!!!!!"...)
		_ = append(got.Value, "!!!!!!!!"...)
		assert.Equal(t, []kv.Entry{a, b}, all(table))
	}
}

// TestSizesAroundTheChunk adds records that fill a chunk exactly, miss it by
// one byte or exceed it, and values directly below and above the blob limit.
func TestSizesAroundTheChunk(t *testing.T) {
	for _, chunk := range []int{64, 128, 4096} {
		table := New(Options{ChunkBytes: chunk})
		var m model
		seq := kv.SeqNum(0)
		for _, n := range []int{1, chunk/4 - 1, chunk / 4, chunk/4 + 1, chunk - 17, chunk - 16, chunk - 15, chunk, chunk + 1, 5 * chunk} {
			for _, value := range []int{0, 1, chunk / 4, chunk/4 + 1, 3 * chunk} {
				seq++
				key := bytes.Repeat([]byte{byte(n)}, max(1, n))
				m.add(table, kv.Entry{Key: key, Value: make([]byte, value), Seq: seq, Kind: kv.KindPut, Expiry: uint64(seq % 2)})
			}
		}
		requireEntries(t, m.sorted(), all(table))
		for _, e := range m {
			var got kv.Entry
			require.True(t, table.Get(keyhash.Sum(e.Key), e.Key, e.Seq, &got))
			require.Equal(t, e, got)
		}
	}
}

// TestKeysOfOneHash: a hash is a hint, the key decides.
func TestKeysOfOneHash(t *testing.T) {
	table := New(Options{})
	const hash = 0xfeed
	for i := range 1000 {
		e := put(fmt.Sprint(i), kv.SeqNum(i+1))
		table.Add(hash, &e)
	}
	var e kv.Entry
	for i := range 1000 {
		require.True(t, table.Get(hash, fmt.Append(nil, i), kv.MaxSeqNum, &e))
		requireEntries(t, []kv.Entry{put(fmt.Sprint(i), kv.SeqNum(i+1))}, []kv.Entry{e})
	}
	require.False(t, table.Get(hash, []byte("1000"), kv.MaxSeqNum, &e))
}

func TestTheIndexGrowsAroundItsKeys(t *testing.T) {
	table := New(Options{})
	const n = 50_000 // 256 segments grow from 16 slots to 512
	key := make([]byte, 4)
	name := func(i int) []byte { return append(key[:0], byte(i), byte(i>>8), byte(i>>16), 'k') }
	for i := range n {
		e := kv.Entry{Key: name(i), Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
		table.Add(keyhash.Sum(e.Key), &e)
	}
	var e kv.Entry
	for i := range n {
		if !table.Get(keyhash.Sum(name(i)), name(i), kv.MaxSeqNum, &e) || e.Seq != kv.SeqNum(i+1) {
			require.Fail(t, "key lost", "%d: %v", i, e)
		}
		if table.Get(keyhash.Sum(name(n+i)), name(n+i), kv.MaxSeqNum, &e) {
			require.Fail(t, "key found that was never added", "%d: %v", n+i, e)
		}
	}
	slots := 0
	for i := range table.index.segments {
		slots += len(table.index.segments[i].Load().slots)
	}
	assert.Equal(t, int64(8*slots), table.index.held.Load())
	assert.Less(t, n, slots/4*3, "never fuller than three quarters")
}

// A memtable is flushed once it is large, so memory that it holds and does not use makes flushes small.
func TestAtMostAFifthOfTheArenaIsUnused(t *testing.T) {
	table := New(Options{})
	value := make([]byte, 1000)
	used := int64(firstAddress)
	for i := range 5000 {
		e := kv.Entry{Key: fmt.Appendf(nil, "%016d", i), Value: value, Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
		table.Add(keyhash.Sum(e.Key), &e)
		used += int64(recordSize(&e, 0, false))
		held := table.arena.held.Load()
		// The end of a chunk that had no room for the next record is unused too.
		most := max(held/5, firstChunkBytes) + int64(len(table.arena.chunks.all()))*int64(recordSize(&e, 0, false))
		require.LessOrEqual(t, held-used, most, "%d entries", i+1)
	}
}

func TestARangeTombstoneIsNoVersionOfItsKey(t *testing.T) {
	table := New(Options{})
	var m model
	m.add(table, put("a", 1))
	m.add(table, kv.Entry{Key: []byte("a"), Value: []byte("c"), Seq: 2, Kind: kv.KindRangeDelete})
	m.add(table, kv.Entry{Key: []byte("a"), Value: []byte("b"), Seq: 2, Kind: kv.KindRangeDelete})
	m.add(table, put("b", 2))
	got, ok := get(table, "a", kv.MaxSeqNum)
	require.True(t, ok)
	assert.Equal(t, put("a", 1), got)
	requireEntries(t, m.sorted(), all(table))
	assert.Equal(t, []byte("b"), all(table)[0].Value, "latest first")
}

func TestCounters(t *testing.T) {
	table := New(Options{})
	for _, e := range []kv.Entry{put("a", 5), put("bb", 5), del("a", 9)} {
		table.Add(keyhash.Sum(e.Key), &e)
	}
	assert.Equal(t, 3, table.Len())
	assert.Equal(t, int64(len("a")+len("a@5")+len("bb")+len("bb@5")+len("a")), table.UserBytes())
	assert.Equal(t, kv.SeqNum(5), table.MinSeq())
	assert.Equal(t, kv.SeqNum(9), table.MaxSeq())
}

func TestBytesGrowsInAddAlone(t *testing.T) {
	table := New(Options{})
	for i := range 10_000 {
		e := put(fmt.Sprint(i), kv.SeqNum(i+1))
		before := table.Bytes()
		table.Add(keyhash.Sum(e.Key), &e)
		if table.Bytes() <= before {
			require.Fail(t, "an Add that costs nothing", "%d to %d bytes", before, table.Bytes())
		}
	}
	before := table.Bytes()
	require.GreaterOrEqual(t, before, table.UserBytes()+10_000*(headerBytes+refBytes+8))
	all(table)
	table.Seal()
	all(table)
	require.Equal(t, before, table.Bytes(), "a scan costs what was counted in")
}

func TestAddPanicsOnWhatACallerMustNeverDo(t *testing.T) {
	fresh := func() *Table {
		table := New(Options{})
		e := put("a", 5)
		table.Add(1, &e)
		return table
	}
	for name, e := range map[string]kv.Entry{
		"older version":   put("a", 4),
		"same version":    put("a", 5),
		"empty key":       put("", 6),
		"long key":        {Key: make([]byte, kv.MaxKeyBytes+1), Seq: 6, Kind: kv.KindPut},
		"long value":      {Key: []byte("b"), Value: make([]byte, kv.MaxValueBytes+1), Seq: 6, Kind: kv.KindPut},
		"no kind":         {Key: []byte("b"), Seq: 6},
		"unknown kind":    {Key: []byte("b"), Seq: 6, Kind: kv.KindMax},
		"no number":       {Key: []byte("b"), Kind: kv.KindPut},
		"number too high": {Key: []byte("b"), Seq: kv.MaxSeqNum + 1, Kind: kv.KindPut},
		"older number":    put("b", 4),
		"empty range":     {Key: []byte("b"), Value: []byte("b"), Seq: 6, Kind: kv.KindRangeDelete},
		"range to nil":    {Key: []byte("b"), Seq: 6, Kind: kv.KindRangeDelete},
		"long range end":  {Key: []byte("b"), Value: bytes.Repeat([]byte("c"), kv.MaxKeyBytes+1), Seq: 6, Kind: kv.KindRangeDelete},
		"delete's value":  {Key: []byte("b"), Value: []byte("v"), Seq: 6, Kind: kv.KindDelete},
	} {
		table := fresh()
		assert.Panics(t, func() { table.Add(1, &e) }, name)
		requireEntries(t, []kv.Entry{put("a", 5)}, all(table))
		assert.Zero(t, table.RangeTombstones().Len(), name)
	}
	longest := kv.Entry{Key: make([]byte, kv.MaxKeyBytes), Seq: kv.MaxSeqNum, Kind: kv.KindDelete}
	assert.NotPanics(t, func() { fresh().Add(1, &longest) })
	sealed := fresh()
	sealed.Seal()
	e := put("a", 6)
	assert.Panics(t, func() { sealed.Add(1, &e) })
}

func TestTouchChangesNoAnswer(t *testing.T) {
	var reads []*kv.Lookup
	for i := range 3*touchAhead + 1 {
		key := fmt.Append(nil, i)
		reads = append(reads, &kv.Lookup{Key: key, Hash: keyhash.Sum(key)})
	}
	table := New(Options{})
	table.Touch(reads) // none exists
	for i := range 2 * touchAhead {
		e := put(fmt.Sprint(i), kv.SeqNum(i+1))
		table.Add(keyhash.Sum(e.Key), &e)
	}
	table.Touch(nil)
	table.Touch(reads)
	var e kv.Entry
	for i, r := range reads {
		require.Equal(t, kv.Lookup{Key: r.Key, Hash: r.Hash}, *r)
		require.Equal(t, i < 2*touchAhead, table.Get(r.Hash, r.Key, kv.MaxSeqNum, &e), "%s", r.Key)
	}
}
