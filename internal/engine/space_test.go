package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// buffered writes of these tests need no sync.
var spaceWrites = kv.WriteOptions{Durability: kv.DurabilityBuffered}

// rest is for how long the stores of these tests are left alone: on the fake clock, and
// so that all that is to be done in the background is done.
const rest = time.Minute

// scaled returns the options of a store of which the default sizes are divided by scale.
func scaled(disk vfs.FS, scale int64) Options {
	o := small(disk)
	o.MemtableBytes, o.tableBytes = 32<<20/scale, 32<<20/scale
	o.SegmentBytes, o.CacheBytes = 64<<20/scale, 64<<10
	return o
}

// TestSpaceComesBack: an idle store frees the space of what was deleted, expired or
// overwritten while it runs. What remains is at most 1.3 times the
// live bytes and a slack, which is 64 MiB for a store of the default sizes; here all
// sizes are divided by 128, or by 512 where the test is reduced.
func TestSpaceComesBack(t *testing.T) {
	scale := 128
	if testsize.Reduced() {
		scale = 512
	}
	slack, keys := int64(64<<20/scale), 512_000/scale
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%08d", i*7919%keys) }
	for place, valueBytes := range []int{100, 1000} {
		name := []string{"values beside keys", "values apart"}[place]
		value := func(round int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%04d", round), valueBytes/4)) }
		fill := func(t *testing.T, e *Engine, round int, ttl time.Duration) {
			for from := 0; from < keys; from += 100 {
				var b kv.WriteBatch
				for i := from; i < from+100; i++ {
					op := kv.Op{Kind: kv.KindPut, Key: key(i), Value: value(round)}
					if ttl > 0 {
						op.Expiry = e.Now() + uint64(ttl.Milliseconds())
					}
					b.Add(op)
				}
				_, err := e.Apply(t.Context(), &b, spaceWrites)
				require.NoError(t, err)
			}
		}
		acts := map[string]func(*testing.T, *Engine) (live int){
			"deleting every key": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 0)
				for i := range keys {
					_, err := e.Delete(context.Background(), key(i), spaceWrites)
					require.NoError(t, err)
				}
				return 0
			},
			"a range delete over all": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 0)
				_, err := e.DeleteRange(t.Context(), kv.Range{Start: []byte("k"), End: []byte("l")}, spaceWrites)
				require.NoError(t, err)
				return 0
			},
			"a range delete over merged data": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 0)
				require.NoError(t, e.CompactAll(t.Context()))
				_, err := e.DeleteRange(t.Context(), kv.Range{Start: []byte("k"), End: []byte("l")}, spaceWrites)
				require.NoError(t, err)
				return 0
			},
			"expiry of all": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 5*time.Second)
				return 0
			},
			"expiry of all but a few": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 5*time.Second)
				for i := range keys / 100 {
					_, err := e.Put(context.Background(), key(i), value(1), spaceWrites)
					require.NoError(t, err)
				}
				return keys / 100
			},
			"expiry long after the last write": func(t *testing.T, e *Engine) int {
				fill(t, e, 0, 2*rest)
				time.Sleep(2 * rest)
				return 0
			},
			"five overwrites": func(t *testing.T, e *Engine) int {
				for round := range 6 {
					fill(t, e, round, 0)
				}
				return keys
			},
			"a snapshot that outlives the load": func(t *testing.T, e *Engine) int {
				for round := range 4 {
					fill(t, e, round, 0)
					_, err := e.BeginSnapshot(t.Context(), rest/2)
					require.NoError(t, err)
				}
				require.NoError(t, e.CompactAll(t.Context()))
				time.Sleep(rest)
				return keys
			},
		}
		for i, what := range slices.Sorted(maps.Keys(acts)) {
			if testsize.Reduced() && i%2 == place { // one place of each
				continue
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					disk := vfs.NewMem()
					e, err := Open("data", scaled(disk, int64(scale)))
					require.NoError(t, err)
					live := acts[what](t, e) * (len(key(0)) + valueBytes)
					before := diskBytes(t, disk, "data")
					time.Sleep(rest)
					after := diskBytes(t, disk, "data")
					allowed := int64(live)*13/10 + slack
					t.Logf("%d live, %d before, %d at rest, %d allowed", live, before, after, allowed)
					assert.LessOrEqual(t, after, allowed, "%s", listing(t, e, disk))
					assertNoStrayFiles(t, e, disk)
					scan, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
					require.NoError(t, err)
					n := 0
					for scan.Next() {
						n++
					}
					require.NoError(t, scan.Err())
					require.NoError(t, scan.Close())
					assert.Equal(t, live/(len(key(0))+valueBytes), n)
					require.NoError(t, e.Close())
				})
			})
		}
	}
}

// The space of large values comes back also if what has overwritten them is small: the delta that hides
// them is then small against the base, however much it hides.
func TestSpaceOfLargeValuesComesBackAfterSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, keys, large, little = 128, 100, 64 << 10, 300
		disk := vfs.NewMem()
		e, err := Open("data", scaled(disk, scale))
		require.NoError(t, err)
		for _, size := range []int{large, little} {
			for i := range keys {
				_, err := e.Put(context.Background(), fmt.Appendf(nil, "key-%08d", i), make([]byte, size), spaceWrites)
				require.NoError(t, err)
			}
		}
		before := diskBytes(t, disk, "data")
		time.Sleep(rest)
		after, allowed := diskBytes(t, disk, "data"), int64(keys*little*13/10+64<<20/scale)
		t.Logf("%d live, %d before, %d at rest, %d allowed", keys*little, before, after, allowed)
		assert.LessOrEqual(t, after, allowed, "%s", listing(t, e, disk))
		require.NoError(t, e.Close())
	})
}

// A memtable is flushed by its age: sooner if it is left alone, and if it has tombstones.
func TestMemtablesAreDueByAge(t *testing.T) {
	const age = 30 * time.Second
	for name, c := range map[string]struct {
		tombstones int
		writes     bool // one a second
		want       time.Duration
	}{
		"left alone":                    {0, false, age},
		"left alone, with tombstones":   {1, false, age / 3},
		"written to":                    {0, true, busyAge * age},
		"written to, and has tombstone": {1, true, busyTombstoneAge * age},
	} {
		t.Run(name, func(t *testing.T) {
			var m memtableAge
			start := time.Now()
			assert.False(t, m.due(start, 0, 0, 0), "it is empty")
			last := kv.SeqNum(1)
			for after := time.Duration(0); ; after += time.Second {
				if m.due(start.Add(after), 1, last, c.tombstones) {
					assert.Equal(t, c.want, after)
					break
				}
				require.Less(t, after, c.want)
				if c.writes {
					last++
				}
			}
			assert.False(t, m.due(start.Add(c.want), last+1, last+1, c.tombstones), "the next one is new")
		})
	}
}

// diskBytes returns the bytes of all files below dir. A file may go meanwhile.
func diskBytes(t *testing.T, disk vfs.FS, dir string) (sum int64) {
	t.Helper()
	names, err := disk.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		info, err := disk.Stat(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		require.NoError(t, err)
		if info.IsDir() {
			sum += diskBytes(t, disk, path.Join(dir, name))
		} else {
			sum += info.Size()
		}
	}
	return sum
}

// assertNoStrayFiles: the tables and value files on the disk are those that the
// manifests name.
func assertNoStrayFiles(t *testing.T, e *Engine, disk vfs.FS) {
	t.Helper()
	for id := range e.partitions {
		dir := path.Join("data", fmt.Sprintf("p-%04d", id))
		v, err := manifest.Load(disk, dir, uint32(id))
		require.NoError(t, err)
		var named, there []string
		for kind, num := range v.Files() {
			if kind == manifest.FileValues {
				named = append(named, manifest.ValuesName(num))
			} else {
				named = append(named, manifest.TableName(num))
			}
		}
		names, err := disk.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			if kind, _ := manifest.ParseName(name); kind == manifest.FileTable || kind == manifest.FileValues {
				there = append(there, name)
			}
		}
		assert.ElementsMatch(t, named, there, dir)
	}
}

// listing says what takes the space.
func listing(t *testing.T, e *Engine, disk vfs.FS) string {
	var b strings.Builder
	s := e.Stats()
	fmt.Fprintf(&b, "log: %d segments, %d bytes\n", s.Log.Segments, s.Log.LiveBytes)
	for i, p := range s.Partitions {
		fmt.Fprintf(&b, "partition %d: memtable %d, %d deltas of %d bytes, base of %d, value files of %d with %d of garbage, %d entries\n",
			i, p.ActiveBytes, p.Deltas, p.DeltaBytes, p.BaseBytes, p.ValueBytes, p.Garbage, p.Entries)
	}
	return b.String()
}
