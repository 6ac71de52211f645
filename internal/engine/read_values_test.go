package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// valueReads counts reads of value files, and gives the next one a fault.
type valueReads struct {
	count atomic.Int64
	next  atomic.Pointer[faultfs.Fault]
}

func (v *valueReads) Inject(op faultfs.Op) faultfs.Fault {
	if op.Kind != faultfs.Read || !faultfs.OnName("*.val")(op) {
		return faultfs.Fault{}
	}
	v.count.Add(1)
	if f := v.next.Swap(nil); f != nil {
		return *f
	}
	return faultfs.Fault{}
}

// apartStore is a store whose values are all in one value file, in one partition.
func apartStore(t *testing.T, keys int) (*Engine, *valueReads, func(i int) string) {
	reads := &valueReads{}
	o := small(faultfs.Wrap(vfs.NewMem(), reads))
	o.Partitions, o.MemtableBytes, o.CacheBytes, o.ValueThreshold = 1, 8<<20, 4<<20, 100
	e := open(t, o)
	value := func(i int) string { return fmt.Sprint(i, strings.Repeat("v", 900+i)) }
	for i := range keys {
		put(t, e, key(i), value(i), memory)
	}
	require.NoError(t, e.CompactAll(t.Context())) // so that nothing else reads
	reads.count.Store(0)
	return e, reads, value
}

func TestAValueThatIsReadAgainComesFromMemory(t *testing.T) {
	const keys = 20
	e, reads, value := apartStore(t, keys)
	for range 3 {
		for i := range keys {
			item, err := e.Get(t.Context(), []byte(key(i)))
			require.NoError(t, err)
			require.Equal(t, value(i), string(item.Value))
			clear(item.Value) // the caller owns it
		}
	}
	opened := reads.count.Load() - keys // reads of the footer
	require.GreaterOrEqual(t, int64(1), opened)

	var batch []*kv.Lookup
	for i := range keys {
		batch = append(batch, &kv.Lookup{Key: []byte(key(i))})
	}
	left, err := e.LookupCached(batch)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = e.LookupAt(t.Context(), batch, 0)
	require.NoError(t, err)
	for i, l := range batch {
		require.Equal(t, value(i), string(l.Value))
	}
	require.Equal(t, keys+opened, reads.count.Load(), "each value was read once")
	stats := e.Stats().Cache
	require.EqualValues(t, 4*keys, stats.ValueHits)

	// What is newer counts, wherever it is.
	put(t, e, key(0), "short", memory)
	put(t, e, key(1), value(100), memory)
	del(t, e, key(2), memory)
	for range 2 {
		for i, want := range map[int]string{0: "short", 1: value(100), 3: value(3)} {
			got, ok := get(t, e, key(i))
			require.True(t, ok)
			require.Equal(t, want, got)
		}
		_, ok := get(t, e, key(2))
		require.False(t, ok)
		require.NoError(t, e.CompactAll(t.Context()))
	}
}

// A read that fails, or finds damage, leaves nothing in the cache, and the values that it read
// beside the damaged one are right.
func TestADamagedValueIsNotCached(t *testing.T) {
	broken := errors.New("broken")
	for name, fault := range map[string]faultfs.Fault{"damage": {FlipMask: 4, FlipOffset: 10}, "error": {Err: broken}} {
		for _, together := range []int{1, 5} {
			t.Run(fmt.Sprint(name, " ", together), func(t *testing.T) {
				e, reads, value := apartStore(t, 10)
				_, ok := get(t, e, key(9)) // opens the file and caches the block of the keys
				require.True(t, ok)
				lookup := func() (failed int) {
					var batch []*kv.Lookup
					for i := range together {
						batch = append(batch, &kv.Lookup{Key: []byte(key(i))})
					}
					require.NoError(t, e.Lookup(t.Context(), batch))
					for i, l := range batch {
						if l.Err != nil {
							require.Nil(t, l.Value)
							require.Equal(t, name == "damage", errors.Is(l.Err, kv.ErrCorrupt))
							require.Equal(t, name == "error", errors.Is(l.Err, broken))
							failed++
							continue
						}
						require.Equal(t, value(i), string(l.Value))
					}
					return failed
				}
				reads.next.Store(&fault)
				want := 1
				if together > 1 && name == "error" {
					want = 0 // a joined read that fails is repeated, value by value
				}
				require.Equal(t, want, lookup())
				before := reads.count.Load()
				require.Zero(t, lookup(), "the fault is over, and nothing of it is in the cache")
				assert.EqualValues(t, want, reads.count.Load()-before)
				require.Zero(t, lookup())
				assert.EqualValues(t, want, reads.count.Load()-before, "now all are")
			})
		}
	}
}

// The values of a file that is removed leave the cache. A file is removed once no goroutine reads
// it: one that looks for compactions may still do so.
func TestRemovedValueFilesLeaveTheCache(t *testing.T) {
	const keys = 20
	e, _, value := apartStore(t, keys)
	for i := range keys {
		got, ok := get(t, e, key(i))
		require.True(t, ok)
		require.Equal(t, value(i), got)
	}
	require.Greater(t, e.Stats().Cache.Bytes, int64(keys*900))
	for i := range keys {
		del(t, e, key(i), memory)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	testwait.Until(t, func() bool { return e.Stats().Cache.Bytes == 0 })
}
