package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// walked returns what a walk of a store visits. Nothing can be written.
func walked(t *testing.T, disk *vfs.Mem, o Options) (*walker, map[string]string) {
	t.Helper()
	o.FS = unwritable(disk)
	got := map[string]string{}
	w, err := walkStore(t.Context(), "data", o, func(key, value []byte) {
		if _, twice := got[string(key)]; twice {
			t.Errorf("%q is visited twice", key)
		}
		got[string(key)] = string(value)
	})
	require.NoError(t, err)
	return w, got
}

// stored returns what a server of the store would find.
func stored(t *testing.T, disk *vfs.Mem, o Options) map[string]string {
	t.Helper()
	o.FS, o.ReadOnly = unwritable(disk), true
	e, err := Open("data", o)
	require.NoError(t, err)
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	want := map[string]string{}
	for s.Next() {
		want[string(s.Item().Key)] = string(s.Item().Value)
	}
	require.NoError(t, errors.Join(s.Err(), s.Close(), e.Close()))
	return want
}

// A walk finds what an opening of the store finds, in however many passes: after puts of
// small and large values, deletes, range deletes, batches, flushes and a kill.
func TestAWalkVisitsWhatAnOpeningFinds(t *testing.T) {
	for _, partitions := range []int{1, 8} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(partitions), 1))
			disk := vfs.NewMem()
			o := small(disk)
			o.Partitions, o.MemtableBytes = partitions, 8<<20
			e := open(t, o)
			for i := range 2500 {
				name := key(rng.IntN(1500))
				switch rng.IntN(20) {
				case 0:
					del(t, e, name, memory)
				case 1:
					var b kv.WriteBatch
					b.Put([]byte(name), []byte("of a batch"))
					b.Put([]byte(key(rng.IntN(1500))), []byte("of a batch"))
					_, err := e.Apply(t.Context(), &b, memory)
					require.NoError(t, err)
				case 2:
					put(t, e, name, strings.Repeat("large", 200), memory)
				default:
					put(t, e, name, fmt.Sprint(i), memory)
				}
				if i%600 == 599 {
					from := rng.IntN(1400)
					var b kv.WriteBatch
					b.DeleteRange([]byte(key(from)), []byte(key(from+40)))
					_, err := e.Apply(t.Context(), &b, memory)
					require.NoError(t, err)
				}
				if i == 1000 {
					require.NoError(t, e.Flush(t.Context()))
				}
			}
			put(t, e, "last", "1", kv.WriteOptions{Durability: kv.DurabilitySync})
			disk = disk.KillImage()
			require.NoError(t, e.Close())
			want := stored(t, disk, o)
			require.Greater(t, len(want), 1000)

			w, got := walked(t, disk, o)
			require.Equal(t, want, got)
			assert.Equal(t, 1, w.passes, "everything fits")
			o.MemtableBytes = 64 << 10
			w, got = walked(t, disk, o)
			require.Equal(t, want, got)
			assert.Greater(t, w.passes, 2)
		})
	}
}

// A walk keeps no more of the log in memory than the budget says.
func TestAWalkStaysWithinItsBudget(t *testing.T) {
	testsize.OneGoroutine(t)
	for name, c := range map[string]struct {
		valueBytes int
		budget     int64
	}{"tiny values": {1, 512 << 10}, "small values": {100, 1 << 20}, "large values": {10_000, 8 << 20}} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			o := small(disk)
			o.MemtableBytes, o.SegmentBytes = 16*c.budget, c.budget
			e := open(t, o)
			value := strings.Repeat("v", c.valueBytes)
			n := int(4*c.budget) / (c.valueBytes + 100)
			for i := 0; i < n; i += 500 {
				var b kv.WriteBatch
				for j := i; j < min(i+500, n); j++ {
					b.Put([]byte(key(j)), []byte(value))
				}
				_, err := e.Apply(t.Context(), &b, memory)
				require.NoError(t, err)
			}
			require.NoError(t, e.Close())
			o.MemtableBytes = c.budget
			w, got := walked(t, disk, o)
			assert.Len(t, got, n)
			t.Logf("%d passes, %d KiB", w.passes, w.most>>10)
			assert.LessOrEqual(t, w.most, c.budget*5/4)
			assert.LessOrEqual(t, w.passes, 8, "not many more than needed")
		})
	}
}

// All passes read at one time: a key does not expire during a walk, which may take longer than
// a scan of a running store.
func TestAWalkReadsAtOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		clock := newTestTime()
		o := small(disk)
		o.time = clock.source()
		o.MemtableBytes = 8 << 20
		e := open(t, o)
		const keys = 2000
		expiry := e.Now() + uint64(time.Minute/time.Millisecond)
		for i := range keys {
			var b kv.WriteBatch
			b.Add(kv.Op{Kind: kv.KindPut, Key: []byte(key(i)), Value: make([]byte, 100), Expiry: expiry})
			_, err := e.Apply(t.Context(), &b, memory)
			require.NoError(t, err)
		}
		require.NoError(t, e.Close())
		o.FS, o.MemtableBytes = unwritable(disk), 64<<10
		n := 0
		w, err := walkStore(t.Context(), "data", o, func([]byte, []byte) {
			n++
			clock.pass(time.Minute)
			time.Sleep(time.Minute)
		})
		require.NoError(t, err)
		assert.Greater(t, w.passes, 2)
		assert.Equal(t, keys, n)
	})
}

func TestAWalkEndsWithItsContext(t *testing.T) {
	disk := vfs.NewMem()
	o := unhurried(disk)
	e := open(t, o)
	for i := range 100 {
		put(t, e, key(i), "v", memory)
	}
	require.ErrorIs(t, Walk(t.Context(), "data", o, nil), vfs.ErrLocked, "it is being served")
	require.NoError(t, e.Close())
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	require.ErrorIs(t, Walk(gaveUp, "data", o, nil), context.Canceled)
	require.NoError(t, open(t, o).Close(), "nothing is left locked")
	o.FS = vfs.NewMem()
	require.Error(t, Walk(t.Context(), "data", o, nil), "there is no store")
}
