package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"testing/synctest"
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
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			m := newMachine(rt)
			defer m.close()
			rt.Repeat(rapid.StateMachineActions(m))
		})
	})
}

// inBubble runs f in a synctest bubble, where leases and lingering cost no real time. It
// passes a panic of f on, as rapid panics to end a run.
func inBubble(t *testing.T, f func()) {
	var reason any
	synctest.Test(t, func(*testing.T) {
		defer func() { reason = recover() }()
		f()
	})
	switch fmt.Sprintf("%T", reason) {
	case "<nil>":
	case "rapid.invalidData": // rapid tells apart what ends a run by where it comes from
		panic(reason)
	default:
		panic(reason)
	}
}

// machine is a store beside a map that should say the same. Its exported methods
// are the actions that rapid chooses from.
type machine struct {
	opts Options
	disk *vfs.Mem
	time *testTime // of the store's clock; leases go by the bubble's
	e    *Engine

	want    view      // what was written, expired or not
	done    []done    // all writes, oldest first
	named   []*named  // those that can be sent again
	seen    kv.SeqNum // the newest version that a caller was told
	weakest kv.Durability
	clock   uint64 // what the clock said, once a key was to expire
	names   uint64 // given out

	snapshots []*heldSnapshot
	scans     []*openScan
	checks    int
}

// item is what a key holds.
type item struct {
	value   string
	version kv.SeqNum
	expiry  uint64
}

func (i item) expired(now uint64) bool { return i.expiry != 0 && i.expiry <= now }

// view is a state of the store.
type view map[string]item

// at returns what is left at a time.
func (v view) at(now uint64) view {
	left := maps.Clone(v)
	maps.DeleteFunc(left, func(_ string, i item) bool { return i.expired(now) })
	return left
}

// apply does the operations of one write, in their order.
func (v view) apply(version kv.SeqNum, ops []kv.Op) {
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case kv.KindPut:
			v[string(op.Key)] = item{string(op.Value), version, op.Expiry}
		case kv.KindDelete:
			delete(v, string(op.Key))
		default:
			span := kv.Range{Start: op.Key, End: op.Value}
			maps.DeleteFunc(v, func(key string, _ item) bool { return span.Contains([]byte(key)) })
		}
	}
}

// lines returns what a scan of the view should give.
func (v view) lines(r kv.Range, o kv.ScanOptions) []string {
	keys := slices.Sorted(maps.Keys(v))
	if o.Reverse {
		slices.Reverse(keys)
	}
	var lines []string
	for _, key := range keys {
		if r.Contains([]byte(key)) && (o.Limit == 0 || uint64(len(lines)) < o.Limit) {
			lines = append(lines, v[key].line(key, o.KeysOnly))
		}
	}
	return lines
}

func (i item) line(key string, keysOnly bool) string {
	if keysOnly {
		i.value = ""
	}
	return fmt.Sprintf("%q=%q version %d expiry %d", key, i.value, i.version, i.expiry)
}

// lookup returns the item as a read of its key answers.
func (v view) lookup(key []byte) kv.Lookup {
	i, ok := v[string(key)]
	return kv.Lookup{Key: key, Found: ok, Value: []byte(i.value), Version: i.version, Expiry: i.expiry}
}

// requireAnswer compares the answer of a read.
func (v view) requireAnswer(t require.TestingT, r *kv.Lookup) {
	require.NoError(t, r.Err)
	want, ok := v[string(r.Key)]
	require.Equal(t, ok, r.Found, "key %q", r.Key)
	require.Equal(t, want, item{string(r.Value), r.Version, r.Expiry}, "key %q", r.Key)
}

// done is a write that happened.
type done struct {
	version kv.SeqNum
	ops     []kv.Op
}

// Few keys, so that collisions are the rule; prefixes of each other, and bytes at
// both ends of the order.
var modelKeys = []string{
	"\x00", "\x00\x00", "\x00\xff", "a", "a\x00", "a\x00\x00", "a\xff", "a\xff\xff", "aa", "ab", "b", "ba",
	"\xff", "\xff\x00", "\xff\xff", "\xff\xff\xff", "long" + string(slices.Repeat([]byte{'k'}, 300)),
}

var (
	modelKey   = rapid.SampledFrom(modelKeys)
	modelValue = rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "v", string(slices.Repeat([]byte("0123456789abcdef"), 200))}),
		rapid.StringN(0, 100, 400),
	)
	modelDurability = rapid.SampledFrom([]kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync})
	modelRange      = rapid.Custom(drawRange)
)

// drawRange draws a range with something in it, or one that is open at its ends.
func drawRange(t *rapid.T) kv.Range {
	bound := rapid.OneOf(modelKey, rapid.Just(""))
	start, end := bound.Draw(t, "start"), bound.Draw(t, "end")
	switch {
	case rapid.IntRange(0, 3).Draw(t, "prefix") == 0:
		return kv.PrefixRange([]byte(start))
	case end != "" && start > end:
		start, end = end, start
	case end == start:
		end = ""
	}
	return kv.Range{Start: []byte(start), End: []byte(end)}
}

func drawOptions(t *rapid.T) Options {
	policy := rapid.Custom(func(t *rapid.T) batcher.Policy {
		return batcher.Policy{
			MaxOps:   rapid.SampledFrom([]int{0, 1, 2, 16}).Draw(t, "batch operations"),
			MaxBytes: rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "batch bytes"),
			Linger:   rapid.SampledFrom([]time.Duration{0, 0, 0, 200 * time.Microsecond, 5 * time.Millisecond}).Draw(t, "linger"),
		}
	})
	return Options{
		Partitions:     rapid.IntRange(1, 16).Draw(t, "partitions"),
		Durability:     modelDurability.Draw(t, "durability"),
		MemtableBytes:  rapid.SampledFrom([]int64{64 << 10, 128 << 10, 1 << 20}).Draw(t, "memtables"),
		CacheBytes:     rapid.SampledFrom([]int64{1, 16 << 10, 1 << 20}).Draw(t, "cache"),
		logBytes:       rapid.SampledFrom([]int64{0, 1, 8 << 10}).Draw(t, "log"),
		SegmentBytes:   rapid.SampledFrom([]int64{1 << 10, 16 << 10, 1 << 20}).Draw(t, "segments"),
		Writes:         policy.Draw(t, "writes"),
		Reads:          policy.Draw(t, "reads"),
		FlushKeys:      rapid.SampledFrom([]int{0, 0, 1, 3, 10}).Draw(t, "flush keys"),
		requestIDs:     rapid.SampledFrom([]int{0, 0, 1, 32, 64}).Draw(t, "names"),
		workers:        rapid.IntRange(2, 4).Draw(t, "workers"),
		LowDiskBytes:   1,
		maxSnapshotAge: time.Hour, // no run takes as long
		tableBytes:     rapid.SampledFrom([]int64{0, 1, 4 << 10}).Draw(t, "tables"),
		ValueThreshold: rapid.SampledFrom([]int{0, 1, 2, 20, math.MaxInt}).Draw(t, "value threshold"),
		table: sstable.WriterOptions{
			BlockBytes:       rapid.SampledFrom([]int{512, 4 << 10, 32 << 10}).Draw(t, "blocks"),
			FilterBitsPerKey: rapid.SampledFrom([]int{1, 10}).Draw(t, "filters"),
		},
		compaction: compaction.Policy{
			DeltaFanIn: rapid.IntRange(2, 5).Draw(t, "fan-in"),
			BaseRatio:  rapid.IntRange(1, 8).Draw(t, "base ratio"),
			MaxGarbage: rapid.SampledFrom([]int{0, 1, 80}).Draw(t, "garbage"),
			DrainBytes: rapid.SampledFrom([]uint64{0, 1}).Draw(t, "drain"),
		},
	}
}

func newMachine(t *rapid.T) *machine {
	m := &machine{opts: drawOptions(t), disk: vfs.NewMem(), time: newTestTime(), want: view{}}
	m.opts.FS, m.opts.time = m.disk, m.time.source()
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

// now returns the state that a read finds.
func (m *machine) now() view { return m.want.at(m.e.Now()) }

func (m *machine) Flush(t *rapid.T) {
	require.NoError(t, m.e.Flush(context.Background()))
	m.weakest = kv.DurabilitySync // all is in tables
}

func (m *machine) Compact(t *rapid.T) {
	require.NoError(t, m.e.CompactAll(context.Background()))
	m.weakest = kv.DurabilitySync
}

// PassTime lets time go on, for the clock and for leases.
func (m *machine) PassTime(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 4 * time.Second}).Draw(t, "time")
	m.time.pass(d)
	require.NoError(t, m.e.clock.keep()) // now, not at the next tick of the maintenance loop
	time.Sleep(d)
	m.forgetLeases()
}

// SetClock sets the wall clock of the machine that the store runs on.
func (m *machine) SetClock(t *rapid.T) {
	m.time.jump(rapid.SampledFrom([]time.Duration{-10 * year, -time.Minute, time.Minute, 10 * year}).Draw(t, "jump"))
}

func (m *machine) RestartClean(t *rapid.T) {
	m.stop(t)
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
	m.stop(t)
	m.disk, m.opts.FS = image, image
	m.open(t)
}

// stop closes the store. Snapshots and scans end with it.
func (m *machine) stop(t *rapid.T) {
	require.NoError(t, m.e.Close())
	for _, s := range m.scans {
		require.NoError(t, s.Close())
	}
	m.scans, m.snapshots = nil, nil
}

// Check compares everything after each action: what there is now, and what every
// snapshot holds.
func (m *machine) Check(t *rapid.T) {
	before := m.e.Now()
	if m.clock > 0 {
		require.GreaterOrEqual(t, before, m.clock, "the clock never goes back")
	}
	if m.e.clock.bound.Load() != nil {
		m.clock = before
	}
	m.checks++
	o := kv.ScanOptions{Reverse: m.checks%2 == 0}
	lines, err := m.scan(kv.Range{}, o)
	require.NoError(t, err)
	require.Equal(t, m.now().lines(kv.Range{}, o), lines)
	require.Equal(t, before, m.e.Now(), "only the test moves the clock")
	for _, s := range m.snapshots {
		o := kv.ScanOptions{At: s.Version, Reverse: m.checks%3 == 0}
		lived := m.live(s.Version)
		lines, err := m.scan(kv.Range{}, o)
		m.requireKept(t, s.Version, lived, err)
		if err == nil {
			require.Equal(t, s.holds.lines(kv.Range{}, o), lines, "snapshot of version %d", s.Version)
		}
	}
}

// scan returns everything that a scan gives.
func (m *machine) scan(r kv.Range, o kv.ScanOptions) (lines []string, err error) {
	s, err := m.e.Scan(context.Background(), r, o)
	if err != nil {
		return nil, err
	}
	for s.Next() {
		lines = append(lines, itemOf(s.Item()).line(string(s.Item().Key), false))
	}
	return lines, errors.Join(s.Err(), s.Close())
}

func itemOf(i *kv.Item) item { return item{string(i.Value), i.Version, i.Expiry} }
