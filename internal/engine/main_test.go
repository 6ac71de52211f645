package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	memory   = kv.WriteOptions{Durability: kv.DurabilityMemory}
	buffered = kv.WriteOptions{Durability: kv.DurabilityBuffered}
	synced   = kv.WriteOptions{Durability: kv.DurabilitySync}
)

// small returns options under which a few hundred writes flush and compact.
func small(fs vfs.FS) Options {
	return Options{
		FS: fs, Partitions: 4, MemtableBytes: 128 << 10, CacheBytes: 64 << 10, SegmentBytes: 64 << 10, LowDiskBytes: 1,
	}
}

// longLease is the lease of a snapshot that lives as long as a test.
const longLease = 1000 * time.Hour

// unhurried is small without what ends because a machine is slow. It is for tests in real time,
// outside of a bubble: there a snapshot by default ends ten seconds after it began, and a write that
// finds the memtables full is refused if no flush ends within a second. Memtables are sealed at a
// number of keys instead, so a few hundred writes still flush and compact.
func unhurried(fs vfs.FS) Options {
	o := small(fs)
	o.MemtableBytes, o.FlushKeys = 64<<20, 30
	o.maxLease, o.maxSnapshotAge = longLease, longLease
	return o
}

// open opens a store that is closed with the test, unless it was before.
func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open("data", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func put(t testing.TB, e *Engine, key, value string, o kv.WriteOptions) kv.SeqNum {
	t.Helper()
	version, err := e.Put(context.Background(), []byte(key), []byte(value), o)
	require.NoError(t, err)
	return version
}

func del(t testing.TB, e *Engine, key string, o kv.WriteOptions) {
	t.Helper()
	_, err := e.Delete(context.Background(), []byte(key), o)
	require.NoError(t, err)
}

// get returns the value and whether the key is there.
func get(t testing.TB, e *Engine, key string) (string, bool) {
	t.Helper()
	item, err := e.Get(context.Background(), []byte(key))
	if err != nil {
		require.ErrorIs(t, err, kv.ErrNotFound)
		return "", false
	}
	return string(item.Value), true
}

func requireValue(t testing.TB, e *Engine, key, want string) {
	t.Helper()
	got, ok := get(t, e, key)
	require.True(t, ok, "key %q is missing", key)
	require.Equal(t, want, got, "key %q", key)
}

func requireAbsent(t testing.TB, e *Engine, key string) {
	t.Helper()
	got, ok := get(t, e, key)
	require.False(t, ok, "key %q is there with %q", key, got)
}

// contents returns everything by a scan.
func contents(t testing.TB, e *Engine) map[string]string {
	t.Helper()
	s, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	all := make(map[string]string)
	last := ""
	for s.Next() {
		key := string(s.Item().Key)
		if key <= last {
			t.Errorf("a scan is not in key order: %q after %q", key, last)
		}
		last = key
		all[key] = string(s.Item().Value)
	}
	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	return all
}

func key(i int) string { return fmt.Sprintf("key-%05d", i) }
