package sstable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

var testID = kv.FileID{Partition: 3, Num: 13}

// bytesFile is a vfs.File in a slice that records its reads. It is
// not safe for concurrent writes.
type bytesFile struct {
	data   []byte
	synced []byte
	syncs  int

	mu     sync.Mutex
	reads  []int // lengths
	onRead func(p []byte, offset int64) error
	closes int
}

func (f *bytesFile) ReadAt(p []byte, offset int64) (int, error) {
	f.mu.Lock()
	f.reads = append(f.reads, len(p))
	onRead := f.onRead
	f.mu.Unlock()
	if offset >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[offset:])
	if onRead != nil {
		if err := onRead(p[:n], offset); err != nil {
			return 0, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *bytesFile) WriteAt(p []byte, offset int64) (int, error) {
	if grow := int(offset) + len(p) - len(f.data); grow > 0 {
		f.data = append(f.data, make([]byte, grow)...)
	}
	return copy(f.data[offset:], p), nil
}

func (f *bytesFile) Close() error                { f.closes++; return nil }
func (f *bytesFile) Sync() error                 { f.syncs++; f.synced = bytes.Clone(f.data); return nil }
func (f *bytesFile) Size() (int64, error)        { return int64(len(f.data)), nil }
func (f *bytesFile) SetAccess(os.FileInfo) error { return nil }
func (f *bytesFile) Attributes() ([]vfs.Attribute, error) {
	return nil, nil
}
func (f *bytesFile) SetAttributes([]vfs.Attribute) error { return nil }
func (f *bytesFile) Truncate(size int64) error           { f.data = f.data[:size]; return nil }
func (f *bytesFile) Reserve(int64, int64) error          { return nil }
func (f *bytesFile) Stat() (os.FileInfo, error)          { return nil, errors.ErrUnsupported }
func (f *bytesFile) StartWriteback(int64, int64)         {}
func (f *bytesFile) Name() string                        { return "p-0003/000013.sst" }

// takeReads returns the lengths of the reads since the last call.
func (f *bytesFile) takeReads() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	reads := f.reads
	f.reads = nil
	return reads
}

func put(key, value string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Value: []byte(value), Seq: seq, Kind: kv.KindPut}
}

func del(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindDelete}
}

func rangeDel(start, end string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(start), Value: []byte(end), Seq: seq, Kind: kv.KindRangeDelete}
}

// numbered returns n puts of the keys key00000, key00002, ...
func numbered(n, valueBytes int) []kv.Entry {
	entries := make([]kv.Entry, n)
	for i := range entries {
		value := bytes.Repeat([]byte{byte('a' + i%26)}, valueBytes)
		entries[i] = put(fmt.Sprintf("key%05d", 2*i), string(value), kv.SeqNum(i+1))
	}
	return entries
}

// build returns the file that holds entries.
func build(t testing.TB, entries []kv.Entry, o WriterOptions) (*bytesFile, kv.TableMeta) {
	t.Helper()
	f := &bytesFile{}
	w := NewWriter(f, testID, o)
	for i := range entries {
		require.NoError(t, w.Add(&entries[i]))
	}
	meta, err := w.Finish()
	require.NoError(t, err)
	return f, meta
}

func open(t testing.TB, f *bytesFile, cache *Cache) *Reader {
	t.Helper()
	r, err := Open(f, testID, cache)
	require.NoError(t, err)
	return r
}

// result is the answer of a read, in comparable form.
type result struct {
	done   bool
	kind   kv.Kind
	seq    kv.SeqNum
	expiry uint64
	value  string
}

func resultOf(q *Query) result {
	r := result{done: q.Done, kind: q.Kind, seq: q.Seq, expiry: q.Expiry}
	if q.Kind == kv.KindPut {
		r.value = string(q.Value)
	}
	if q.Apart {
		r.value = string(q.Pointer.AppendTo(nil))
	}
	return r
}

func query(key []byte, at kv.SeqNum) Query {
	return Query{Key: key, Hash: keyhash.Sum(key), At: at}
}

func get(r *Reader, key []byte, at kv.SeqNum) (result, error) {
	q := query(key, at)
	r.Get(&q)
	return resultOf(&q), q.Err
}

// oracle computes an answer by a scan of all entries.
func oracle(entries []kv.Entry, key []byte, at kv.SeqNum) result {
	var best result
	for i := range entries {
		e := &entries[i]
		if e.Seq > at || e.Seq < best.seq {
			continue
		}
		if e.Kind == kv.KindRangeDelete {
			if (kv.Range{Start: e.Key, End: e.Value}).Contains(key) && e.Seq > best.seq {
				best = result{done: true, kind: e.Kind, seq: e.Seq}
			}
			continue
		}
		if bytes.Equal(e.Key, key) {
			best = result{done: true, kind: e.Kind, seq: e.Seq, expiry: e.Expiry, value: string(e.Value)}
		}
	}
	return best
}

// questions returns queries for present keys and for others before, between and after
// them, at sequence numbers that see all, some or none of the versions.
func questions(entries []kv.Entry) []Query {
	var qs []Query
	add := func(key []byte, at kv.SeqNum) { qs = append(qs, query(key, at)) }
	for i := range entries {
		key := entries[i].Key
		for _, at := range []kv.SeqNum{kv.MaxSeqNum, entries[i].Seq, entries[i].Seq - 1} {
			add(key, at)
		}
		add(append(bytes.Clone(key), 0), kv.MaxSeqNum)
		add(key[:len(key)-1], kv.MaxSeqNum)
	}
	add([]byte{0}, kv.MaxSeqNum)
	add(bytes.Repeat([]byte{0xff}, 40), kv.MaxSeqNum)
	return qs
}

// getBatch runs all queries on one file in one batch.
func getBatch(r *Reader, qs []Query) { GetBatch(asksOf(r, qs)) }

// asksOf returns asks of one file for all queries.
func asksOf(r *Reader, qs []Query) []Ask {
	asks := make([]Ask, len(qs))
	for i := range qs {
		asks[i] = Ask{Reader: r, Query: &qs[i]}
	}
	return asks
}

// requireAnswers runs all questions one by one and in batches.
func requireAnswers(t testing.TB, r *Reader, entries []kv.Entry) {
	t.Helper()
	qs := questions(entries)
	want := make([]result, len(qs))
	for i := range qs {
		want[i] = oracle(entries, qs[i].Key, qs[i].At)
		got, err := get(r, qs[i].Key, qs[i].At)
		if err != nil || got != want[i] {
			require.NoError(t, err)
			require.Equal(t, want[i], got, "key %q at %d", qs[i].Key, qs[i].At)
		}
	}
	for batch := range slices.Chunk(qs, 33) {
		getBatch(r, batch)
		for i := range batch {
			if q := &batch[i]; q.Err != nil || resultOf(q) != want[i] {
				require.NoError(t, q.Err)
				require.Equal(t, want[i], resultOf(q), "batch: key %q at %d", q.Key, q.At)
			}
		}
		want = want[len(batch):]
	}
}

func cloneEntry(e *kv.Entry) kv.Entry {
	c := *e
	c.Key, c.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
	return c
}

// requireEntry compares entries; nil and empty values are equal.
func requireEntry(t require.TestingT, want, got *kv.Entry) {
	if !bytes.Equal(want.Key, got.Key) || !bytes.Equal(want.Value, got.Value) ||
		want.Seq != got.Seq || want.Kind != got.Kind || want.Expiry != got.Expiry {
		require.FailNow(t, "another entry", "want %v, got %v", want, got)
	}
}

func requireSameEntries(t testing.TB, want, got []kv.Entry) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		requireEntry(t, &want[i], &got[i])
	}
}

// collect walks forward from the position of a move that returned ok.
func collect(it kv.Iterator, ok bool) ([]kv.Entry, error) {
	var entries []kv.Entry
	for ; ok; ok = it.Next() {
		entries = append(entries, cloneEntry(it.Entry()))
	}
	return entries, it.Err()
}

// collectBack walks backward from the position of a move that returned ok.
func collectBack(it kv.Iterator, ok bool) ([]kv.Entry, error) {
	var entries []kv.Entry
	for ; ok; ok = it.Prev() {
		entries = append(entries, cloneEntry(it.Entry()))
	}
	return entries, it.Err()
}

// reversed returns a copy of entries in the order of a backward walk.
func reversed(entries []kv.Entry) []kv.Entry {
	entries = slices.Clone(entries)
	slices.Reverse(entries)
	return entries
}

// requireTable compares every kind of read of a file with entries.
func requireTable(t testing.TB, entries []kv.Entry, o WriterOptions) {
	t.Helper()
	f, meta := build(t, entries, o)
	require.Equal(t, f.synced, f.data, "all bytes are synced")
	require.EqualValues(t, len(f.data), meta.Size)
	r := open(t, f, NewCache(1<<20))
	require.Equal(t, meta, r.Meta())
	requireAnswers(t, r, entries)
	for _, o := range []IterOptions{{}, {FillCache: true}, {Readahead: 700}} {
		it := r.NewIterator(o)
		require.False(t, it.Valid())
		got, err := collect(it, it.First())
		require.NoError(t, err)
		requireSameEntries(t, entries, got)
		got, err = collectBack(it, it.Last())
		require.NoError(t, err)
		requireSameEntries(t, reversed(entries), got)
		require.NoError(t, it.Close())
	}
	require.NoError(t, r.Verify(context.Background(), nil))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close(), "Close is idempotent")
	require.Equal(t, 1, f.closes)
}

// sortEntries sorts entries into the order of a file.
func sortEntries(entries []kv.Entry) {
	slices.SortStableFunc(entries, func(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) })
}

// randomEntries returns up to n entries of few keys over a small alphabet, in
// the order of a file: many versions, long common prefixes, all kinds.
func randomEntries(rng *rand.Rand, n int) []kv.Entry {
	key := func() string {
		b := make([]byte, 1+rng.IntN(5))
		for i := range b {
			b[i] = "\x00ab\xff"[rng.IntN(4)]
		}
		return string(b)
	}
	var entries []kv.Entry
	for i := range n {
		seq := kv.SeqNum(i + 1)
		switch start, end := key(), key(); {
		case rng.IntN(10) == 0 && start < end:
			entries = append(entries, rangeDel(start, end, seq))
		case rng.IntN(5) == 0:
			entries = append(entries, del(start, seq))
		default:
			e := put(start, end, seq)
			e.Expiry = rng.Uint64N(3)
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		entries = append(entries, put("a", "b", 1))
	}
	sortEntries(entries)
	return entries
}
