package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/compaction"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// TestModel does random operations on a store, and on a map, and compares.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		defer m.close()
		t.Repeat(rapid.StateMachineActions(m))
	})
}

// machine is a store beside a map that should say the same. Its exported methods
// are the actions that rapid chooses from.
type machine struct {
	opts    Options
	disk    *vfs.Mem
	e       *Engine
	want    map[string]item
	last    kv.SeqNum // the newest version
	weakest kv.Durability
}

type item struct {
	value   string
	version kv.SeqNum
}

// Few keys, so that collisions are the rule; prefixes of each other, and bytes at
// both ends of the order.
var modelKeys = []string{
	"\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00\x00", "a\xff", "a\xff\xff", "aa", "ab", "b", "ba",
	"\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff", "long" + string(bytes.Repeat([]byte{'k'}, 300)),
}

var (
	modelKey   = rapid.SampledFrom(modelKeys)
	modelValue = rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "v", string(bytes.Repeat([]byte("0123456789abcdef"), 200))}),
		rapid.StringN(0, 100, 400),
	)
	modelDurability = rapid.SampledFrom([]kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync})
)

func drawOptions(t *rapid.T) Options {
	policy := rapid.Custom(func(t *rapid.T) batcher.Policy {
		return batcher.Policy{
			MaxOps:   rapid.SampledFrom([]int{0, 1, 2, 16}).Draw(t, "batch operations"),
			MaxBytes: rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "batch bytes"),
			Linger:   rapid.SampledFrom([]time.Duration{0, 0, 0, 200 * time.Microsecond, time.Millisecond}).Draw(t, "linger"),
		}
	})
	return Options{
		Partitions:    rapid.IntRange(1, 16).Draw(t, "partitions"),
		Durability:    modelDurability.Draw(t, "durability"),
		MemtableBytes: rapid.SampledFrom([]int64{64 << 10, 128 << 10, 1 << 20}).Draw(t, "memtables"),
		CacheBytes:    rapid.SampledFrom([]int64{1, 16 << 10, 1 << 20}).Draw(t, "cache"),
		LogBytes:      rapid.SampledFrom([]int64{0, 1, 8 << 10}).Draw(t, "log"),
		SegmentBytes:  rapid.SampledFrom([]int64{1 << 10, 16 << 10, 1 << 20}).Draw(t, "segments"),
		Writes:        policy.Draw(t, "writes"),
		Reads:         policy.Draw(t, "reads"),
		FlushKeys:     rapid.SampledFrom([]int{0, 0, 1, 3, 10}).Draw(t, "flush keys"),
		Workers:       rapid.IntRange(2, 4).Draw(t, "workers"),
		LowDiskBytes:  1,
		TableBytes:    rapid.SampledFrom([]int64{0, 1, 4 << 10}).Draw(t, "tables"),
		Table: sstable.WriterOptions{
			BlockBytes:       rapid.SampledFrom([]int{512, 4 << 10, 32 << 10}).Draw(t, "blocks"),
			FilterBitsPerKey: rapid.SampledFrom([]int{1, 10}).Draw(t, "filters"),
		},
		Compaction: compaction.Policy{
			DeltaFanIn: rapid.IntRange(2, 5).Draw(t, "fan-in"),
			BaseRatio:  rapid.IntRange(1, 8).Draw(t, "base ratio"),
			DrainBytes: rapid.SampledFrom([]uint64{0, 1}).Draw(t, "drain"),
		},
	}
}

func newMachine(t *rapid.T) *machine {
	m := &machine{opts: drawOptions(t), disk: vfs.NewMem(), want: map[string]item{}, weakest: kv.DurabilitySync}
	m.opts.FS = m.disk
	m.open(t)
	return m
}

func (m *machine) open(t *rapid.T) {
	var err error
	m.e, err = Open("data", m.opts)
	if err != nil {
		t.Fatalf("open: %v", err) // rapid prints the last line only
	}
	m.weakest = kv.DurabilitySync // all that was replayed is synced
}

func (m *machine) close() {
	if m.e != nil {
		_ = m.e.Close()
	}
}

// wrote takes in a write that was acknowledged.
func (m *machine) wrote(t *rapid.T, d kv.Durability, version kv.SeqNum, err error, ops ...kv.Op) {
	require.NoError(t, err)
	require.Greater(t, version, m.last, "versions grow")
	m.last = version
	if d == kv.DurabilityDefault {
		d = m.opts.Durability
	}
	m.weakest = min(m.weakest, d)
	for _, op := range ops {
		if op.Kind == kv.KindPut {
			m.want[string(op.Key)] = item{string(op.Value), version}
		} else {
			delete(m.want, string(op.Key))
		}
	}
}

func (m *machine) Put(t *rapid.T) {
	op := kv.Op{Kind: kv.KindPut, Key: []byte(modelKey.Draw(t, "key")), Value: []byte(modelValue.Draw(t, "value"))}
	d := modelDurability.Draw(t, "durability")
	version, err := m.e.Put(context.Background(), op.Key, op.Value, kv.WriteOptions{Durability: d})
	m.wrote(t, d, version, err, op)
}

func (m *machine) Delete(t *rapid.T) {
	op := kv.Op{Kind: kv.KindDelete, Key: []byte(modelKey.Draw(t, "key"))}
	version, err := m.e.Delete(context.Background(), op.Key, kv.WriteOptions{})
	m.wrote(t, kv.DurabilityDefault, version, err, op)
}

func (m *machine) Batch(t *rapid.T) {
	var b kv.WriteBatch
	var ops []kv.Op
	for range rapid.IntRange(1, 8).Draw(t, "operations") {
		op := kv.Op{Kind: kv.KindDelete, Key: []byte(modelKey.Draw(t, "key"))}
		if rapid.Bool().Draw(t, "put") {
			op.Kind, op.Value = kv.KindPut, []byte(modelValue.Draw(t, "value"))
		}
		b.Add(op)
		ops = append(ops, op)
	}
	d := modelDurability.Draw(t, "durability")
	version, err := m.e.Apply(context.Background(), &b, kv.WriteOptions{Durability: d})
	m.wrote(t, d, version, err, ops...)
}

// Writes does independent writes in one call; those on one key keep their order.
func (m *machine) Writes(t *rapid.T) {
	var writes []*kv.Write
	for range rapid.IntRange(1, 12).Draw(t, "writes") {
		writes = append(writes, &kv.Write{
			Op:         kv.Op{Kind: kv.KindPut, Key: []byte(modelKey.Draw(t, "key")), Value: []byte(modelValue.Draw(t, "value"))},
			Durability: modelDurability.Draw(t, "durability"),
		})
	}
	require.NoError(t, m.e.Write(context.Background(), writes))
	newest := map[string]kv.SeqNum{}
	for _, w := range writes {
		require.Greater(t, w.Version, newest[string(w.Op.Key)], "writes of one key keep their order")
		newest[string(w.Op.Key)] = w.Version
	}
	slices.SortFunc(writes, func(a, b *kv.Write) int { return int(a.Version) - int(b.Version) })
	for _, w := range writes {
		m.wrote(t, w.Durability, w.Version, w.Err, w.Op)
	}
}

func (m *machine) Get(t *rapid.T) {
	key := modelKey.Draw(t, "key")
	got, err := m.e.Get(context.Background(), []byte(key))
	want, ok := m.want[key]
	if !ok {
		require.ErrorIs(t, err, kv.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, item{string(got.Value), got.Version})
}

func (m *machine) MultiGet(t *rapid.T) {
	var reads []*kv.Lookup
	for range rapid.IntRange(1, 20).Draw(t, "reads") {
		reads = append(reads, &kv.Lookup{Key: []byte(modelKey.Draw(t, "key"))})
	}
	if rapid.Bool().Draw(t, "at one version") {
		at, err := m.e.LookupAt(context.Background(), reads, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, at, m.last)
	} else {
		require.NoError(t, m.e.Lookup(context.Background(), reads))
	}
	for _, r := range reads {
		require.NoError(t, r.Err)
		want, ok := m.want[string(r.Key)]
		require.Equal(t, ok, r.Found, "key %q", r.Key)
		require.Equal(t, want, item{string(r.Value), r.Version}, "key %q", r.Key)
	}
}

func (m *machine) Scan(t *rapid.T) {
	bound := rapid.OneOf(modelKey, rapid.Just(""))
	r := kv.Range{Start: []byte(bound.Draw(t, "start")), End: []byte(bound.Draw(t, "end"))}
	if rapid.Bool().Draw(t, "prefix") {
		r = kv.PrefixRange(r.Start)
	}
	o := kv.ScanOptions{Limit: rapid.Uint64Range(0, 5).Draw(t, "limit"), KeysOnly: rapid.Bool().Draw(t, "keys only")}
	var want []string
	for _, key := range slices.Sorted(maps.Keys(m.want)) {
		if !r.Contains([]byte(key)) || o.Limit > 0 && uint64(len(want)) == o.Limit {
			continue
		}
		i := m.want[key]
		if o.KeysOnly {
			i.value = ""
		}
		want = append(want, fmt.Sprintf("%q=%v", key, i))
	}
	s, err := m.e.Scan(context.Background(), r, o)
	require.NoError(t, err)
	var got []string
	for s.Next() {
		got = append(got, fmt.Sprintf("%q=%v", s.Item().Key, item{string(s.Item().Value), s.Item().Version}))
	}
	require.NoError(t, errors.Join(s.Err(), s.Close()))
	require.Equal(t, want, got)
}

func (m *machine) Flush(t *rapid.T) {
	require.NoError(t, m.e.Flush(context.Background()))
	m.weakest = kv.DurabilitySync // all is in tables
}

func (m *machine) Compact(t *rapid.T) {
	require.NoError(t, m.e.CompactAll(context.Background()))
	m.weakest = kv.DurabilitySync
}

func (m *machine) RestartClean(t *rapid.T) {
	require.NoError(t, m.e.Close())
	m.open(t)
}

// RestartKilled goes on with what kill -9 leaves, if that must be everything.
func (m *machine) RestartKilled(t *rapid.T) {
	if m.weakest < kv.DurabilityBuffered {
		t.Skip("something is in memory alone")
	}
	m.crash(t, m.disk.KillImage())
}

// RestartPowerCut goes on with the least that a power cut leaves, if that must be
// everything.
func (m *machine) RestartPowerCut(t *rapid.T) {
	if m.weakest < kv.DurabilitySync {
		t.Skip("something is not synced")
	}
	m.crash(t, m.disk.CrashImage(vfs.DropAll, nil))
}

func (m *machine) crash(t *rapid.T, image *vfs.Mem) {
	require.NoError(t, m.e.Close())
	m.disk, m.opts.FS = image, image
	m.open(t)
}

// Check compares everything after each action.
func (m *machine) Check(t *rapid.T) {
	s, err := m.e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	got := map[string]item{}
	for s.Next() {
		got[string(s.Item().Key)] = item{string(s.Item().Value), s.Item().Version}
	}
	require.NoError(t, errors.Join(s.Err(), s.Close()))
	require.Equal(t, m.want, got)
}
