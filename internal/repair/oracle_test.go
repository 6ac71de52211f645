package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

const (
	damagedDir  = "damaged"
	repairedDir = "repaired"
	partitions  = 3
)

// history is a store with every kind of file, closed, and every write that made it.
type history struct {
	t      testing.TB
	disk   *vfs.Mem
	e      *engine.Engine
	writes []written // in the order of versions
	files  map[string][]byte

	halfway map[string][]byte // the files at an earlier version

	stored map[stored]bool // what tables and log hold; merges drop what a newer write hides

	known  map[string][]written // what of has found since the last write
	sorted []string             // what keys has found since the last write; may be nil

	missing *int // counts writes that new stores lacked; may be nil
}

// written is one operation of a write.
type written struct {
	kind    kv.Kind
	key     string
	value   string // of a range delete its end
	version kv.SeqNum
	expiry  uint64
}

// stored is a write to a key, or a range delete with key "".
type stored struct {
	key     string
	version kv.SeqNum
}

func (w *written) stored() stored {
	if w.kind == kv.KindRangeDelete {
		return stored{"", w.version}
	}
	return stored{w.key, w.version}
}

// closed notes the files of the store, which was closed, and what they hold.
func (h *history) closed() {
	t := h.t
	h.files = filesOf(t, h.disk, damagedDir)
	h.stored = map[stored]bool{}
	add := func(kind kv.Kind, key []byte, version kv.SeqNum) {
		w := written{kind: kind, key: string(key), version: version}
		h.stored[w.stored()] = true
	}
	for id := range partitions {
		dir := descriptor.PartitionDir(damagedDir, id)
		v, err := manifest.Load(h.disk, dir, uint32(id))
		require.NoError(t, err)
		for m := range v.Tables() {
			f, err := h.disk.Open(path.Join(dir, manifest.TableName(m.Num)))
			require.NoError(t, err)
			_, err = sstable.Salvage(t.Context(), f, kv.FileID{Partition: uint32(id), Num: m.Num}, func(e *kv.Entry) error {
				add(e.Kind, e.Key, e.Seq)
				return nil
			})
			require.NoError(t, errors.Join(err, f.Close()))
		}
	}
	d, err := descriptor.Read(h.disk, damagedDir)
	require.NoError(t, err)
	_, err = wal.Salvage(h.disk, descriptor.LogDir(damagedDir), d.StoreID, func(r wal.Record) error {
		return record.Decode(r.Payload, func(op *record.Op) error {
			add(op.Kind, op.Key, r.Base+kv.SeqNum(op.Unit))
			return nil
		})
	})
	require.NoError(t, err)
}

func testOptions(fsys vfs.FS) engine.Options {
	return engine.Options{
		FS: fsys, Partitions: partitions, MemtableBytes: 256 << 10, CacheBytes: 64 << 10, SegmentBytes: 16 << 10, LowDiskBytes: 1, ValueThreshold: 100,
	}
}

func keyOf(i int) string { return fmt.Sprintf("key-%05d", i) }

// shared is made once: each test changes a copy.
var shared struct {
	sync.Once
	history
}

func newHistory(t testing.TB) *history {
	shared.Do(func() { shared.history = *makeHistory(t) })
	require.NotEmpty(t, shared.files, "the test that made the store failed")
	h := shared.history
	h.t, h.disk, h.writes = t, h.disk.KillImage(), slices.Clip(h.writes)
	h.known, h.sorted = map[string][]written{}, h.keys()
	return &h
}

// makeHistory makes the store. What is in the base, in deltas and in the log alone overlaps.
func makeHistory(t testing.TB) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range 450 {
		h.put(i, "first")
	}
	require.NoError(t, h.e.CompactAll(t.Context()))
	for i := 100; i < 250; i++ {
		h.put(i, "second")
		if i == 170 {
			h.halfway = filesOf(t, h.disk.KillImage(), damagedDir)
		}
	}
	for i := 0; i < 450; i += 9 {
		h.del(i)
	}
	h.delRange(300, 330)
	h.batch(310, 10, "batch")
	h.batch(20, 10, "batch")
	require.NoError(t, h.e.Flush(t.Context()))
	for i := 200; i < 230; i++ {
		h.put(i, "in the log")
	}
	h.delRange(400, 405)
	h.batch(395, 10, "in the log")
	h.close()
	h.open() // a second segment
	for i := 225; i < 240; i++ {
		h.put(i, "in the next segment")
	}
	h.close()
	h.closed()
	return h
}

func (h *history) open() {
	e, err := engine.Open(damagedDir, testOptions(h.disk))
	require.NoError(h.t, err)
	h.e = e
}

func (h *history) close() { require.NoError(h.t, h.e.Close()) }

var buffered = kv.WriteOptions{Durability: kv.DurabilityBuffered}

// valueOf is long enough for a value file if i is a multiple of 5.
func valueOf(i int, round string) string {
	n := 40
	if i%5 == 0 {
		n = 200
	}
	return fmt.Sprintf("%s %d %s", round, i, strings.Repeat("v", n))
}

func (h *history) note(version kv.SeqNum, err error, ops ...kv.Op) {
	h.t.Helper()
	require.NoError(h.t, err)
	h.known, h.sorted = map[string][]written{}, nil
	for _, op := range ops {
		h.writes = append(h.writes, written{op.Kind, string(op.Key), string(op.Value), version, op.Expiry})
	}
}

func putOp(i int, round string) kv.Op {
	op := kv.Op{Kind: kv.KindPut, Key: []byte(keyOf(i)), Value: []byte(valueOf(i, round))}
	if i%11 == 0 {
		op.Expiry = 1 << 50 // not while the test lasts
	}
	return op
}

func (h *history) apply(ops ...kv.Op) {
	h.t.Helper()
	var b kv.WriteBatch
	for _, op := range ops {
		b.Add(op)
	}
	version, err := h.e.Apply(h.t.Context(), &b, buffered)
	h.note(version, err, ops...)
}

func (h *history) put(i int, round string) { h.apply(putOp(i, round)) }

func (h *history) del(i int) { h.apply(kv.Op{Kind: kv.KindDelete, Key: []byte(keyOf(i))}) }

func (h *history) delRange(from, to int) {
	h.apply(kv.Op{Kind: kv.KindRangeDelete, Key: []byte(keyOf(from)), Value: []byte(keyOf(to))})
}

// batch puts n keys at one version.
func (h *history) batch(from, n int, round string) {
	var ops []kv.Op
	for i := from; i < from+n; i++ {
		ops = append(ops, putOp(i, round))
	}
	h.apply(ops...)
}

// of returns the writes that concern a key, the newest first. A range delete hides only what
// is older.
func (h *history) of(key string) []written {
	all, known := h.known[key]
	if !known {
		all = h.find(key)
		h.known[key] = all
	}
	return all
}

func (h *history) find(key string) (all []written) {
	for _, w := range slices.Backward(h.writes) {
		if w.kind == kv.KindRangeDelete && w.key <= key && key < w.value || w.kind != kv.KindRangeDelete && w.key == key {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b written) int {
		if a.version != b.version {
			return int(b.version) - int(a.version)
		}
		return int(a.kind) - int(b.kind) // a put of the same batch counts
	})
	return all
}

// keys returns the keys that were ever written, sorted.
func (h *history) keys() []string {
	if h.sorted != nil {
		return h.sorted
	}
	keys := map[string]bool{}
	for _, w := range h.writes {
		if w.kind != kv.KindRangeDelete {
			keys[w.key] = true
		}
	}
	h.sorted = slices.Sorted(maps.Keys(keys))
	return h.sorted
}

// filesOf returns the content of every file below a directory.
func filesOf(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	all := map[string][]byte{}
	names, err := fsys.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := fsys.Stat(name)
		require.NoError(t, err)
		if info.IsDir() {
			maps.Copy(all, filesOf(t, fsys, name))
			continue
		}
		all[name] = contentOf(t, fsys, name)
	}
	return all
}

func contentOf(t testing.TB, fsys vfs.FS, name string) []byte {
	f, err := fsys.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	content := make([]byte, size)
	if _, err = f.ReadAt(content, 0); size > 0 && err != io.EOF {
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return content
}

// replace gives a file another content; nil removes it.
func replace(t testing.TB, disk *vfs.Mem, name string, content []byte) {
	if _, err := disk.Stat(name); err == nil {
		require.NoError(t, disk.Remove(name))
	}
	if content == nil {
		return
	}
	f, err := disk.Create(name)
	require.NoError(t, err)
	_, err = f.WriteAt(content, 0)
	require.NoError(t, errors.Join(err, f.Close()))
}

// repaired repairs a copy of the store in which damages were done, and judges the result: the
// damaged store is unchanged, the new one is whole, nothing is invented, and the report
// covers what is missing.
func (h *history) repaired(damage func(disk *vfs.Mem)) *Report {
	h.t.Helper()
	disk := h.disk.KillImage()
	damage(disk)
	return h.judge(disk, Options{})
}

func (h *history) judge(disk *vfs.Mem, o Options) *Report {
	t := h.t
	t.Helper()
	before := filesOf(t, disk, damagedDir)
	r, err := Run(t.Context(), disk, damagedDir, repairedDir, o)
	require.NoError(t, err)
	require.Equal(t, before, filesOf(t, disk, damagedDir), "a repair does not change the damaged store")

	h.requireRepaired(disk, r)
	return r
}

// requireRepaired checks that the new store is whole, and compares it with the history.
func (h *history) requireRepaired(disk *vfs.Mem, r *Report) {
	t := h.t
	t.Helper()
	checked, err := inspect.Check(t.Context(), disk, repairedDir, nil, nil)
	require.NoError(t, err)
	require.NoError(t, checked.Err(), "the new store is whole")
	for _, f := range checked.Files {
		require.NotEqual(t, inspect.KindOther, f.Kind, "the new store has only files that it needs: %s", f.Path)
	}

	options := testOptions(disk)
	options.ReadOnly, options.Partitions = true, 0
	e, err := engine.Open(repairedDir, options)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	found := map[string]kv.Item{}
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	for s.Next() {
		item := *s.Item()
		item.Key, item.Value = bytes.Clone(item.Key), bytes.Clone(item.Value)
		found[string(item.Key)] = item
	}
	require.NoError(t, errors.Join(s.Err(), s.Close()))
	h.compare(r, found)
}

// compare compares what a new store has with the history.
func (h *history) compare(r *Report, found map[string]kv.Item) {
	t := h.t
	t.Helper()
	h.requireNotInvented(found)
	for _, key := range h.keys() {
		partition := keyhash.Partition(keyhash.Sum([]byte(key)), partitions)
		for i, w := range h.of(key) {
			if item, ok := found[key]; ok && item.Version >= w.version {
				break
			} else if !ok && (i > 0 || w.kind != kv.KindPut) {
				break // absent, as it should be, or as the newest write that is lost would explain
			} else if i > 0 && !h.stored[w.stored()] {
				continue // a merge dropped it for a newer write
			}
			require.Truef(t, r.Covers(partition, []byte(key), w.version),
				"write %d of key %q is missing, and the report does not say so: %+v", w.version, key, r.Losses)
			if h.missing != nil {
				*h.missing++
			}
		}
	}
}

// requireNothingLost checks a report of a damage that loses nothing.
func requireNothingLost(t testing.TB, r *Report) {
	t.Helper()
	require.Empty(t, r.Losses)
}
