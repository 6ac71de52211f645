package replicated

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/repair"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// fill writes keys of several partitions, some of them anew.
func (c *cluster) fill(from, n int) {
	leader := c.leader()
	for i := from; i < from+n; i++ {
		leader.put(fmt.Sprintf("key %d", i%50), strings.Repeat(fmt.Sprint(i), 20))
	}
}

// A node that restarts, in order or after a power cut, continues from what its partitions have
// flushed, each for itself.
func TestANodeRestarts(t *testing.T) {
	for name, down := range map[string]func(*node){"in order": (*node).stop, "after a power cut": (*node).crash} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 3, nil)
				defer c.stop()
				c.fill(0, 100)
				for _, n := range c.nodes {
					if n == c.leader() {
						continue
					}
					require.NoError(t, n.store.Flush(t.Context()))
					c.fill(100, 10) // some partitions have unflushed writes
					down(n)
					c.fill(110, 20)
					n.start()
					c.fill(130, 20)
					c.agree()
				}
				leader := c.leader()
				require.NoError(t, leader.store.Flush(t.Context()))
				down(leader)
				c.fill(150, 20)
				leader.start()
				c.agree()
				for _, n := range c.nodes {
					down(n)
				}
				for _, n := range c.nodes {
					n.start()
				}
				c.fill(170, 5)
				state := c.agree()
				require.Contains(t, state, "key 24="+strings.Repeat("174", 20))
				require.Equal(t, 50, strings.Count(state, "\n"))
			})
		})
	}
}

// All nodes lose power at any moment: what was acknowledged is there, the same everywhere.
func TestAllNodesLosePower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, func(o *engine.Options) { o.MemtableBytes = 64 << 10 })
		defer c.stop()
		rounds := 4
		if testsize.Reduced() {
			rounds = 2
		}
		for round := range rounds {
			c.fill(100*round, 60)
			if round%2 == 0 {
				for _, n := range c.nodes {
					require.NoError(t, n.store.Flush(t.Context()))
				}
			}
			c.fill(100*round+60, 7)
			version, before := c.leader().digest()
			for _, n := range c.nodes {
				n.crash()
			}
			for _, n := range c.nodes {
				n.start()
			}
			at, after := c.leader().digest()
			require.Greater(t, at, version, "the new leader has begun with an entry of its own")
			require.Equal(t, before, after)
			c.agree()
		}
	})
}

// The log is given up once everything is flushed, and a node that restarts then needs only the
// rest. Partitions without writes do not hold it.
func TestTheLogIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader := c.leader()
		value := strings.Repeat("v", 4<<10)
		for i := range 300 { // one partition alone is written to
			leader.put("key", fmt.Sprint(i, value))
			if i%40 == 39 {
				for _, n := range c.nodes {
					require.NoError(t, n.store.Flush(t.Context()))
				}
				time.Sleep(3 * time.Second)
			}
		}
		// Partitions that saved nothing but their position take conditional writes.
		for p := range 3 {
			w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(keyOf(p)), Value: []byte("x")}, If: &kv.Condition{Kind: kv.IfAbsent}}
			require.NoError(t, leader.store.Write(t.Context(), []*kv.Write{w}))
			require.NoError(t, w.Err)
		}
		state := c.agree()
		for _, n := range c.nodes {
			require.Less(t, logBytes(t, n.fs), int64(600<<10), "node %d", n.id)
		}
		for _, n := range c.nodes {
			n.crash()
		}
		for _, n := range c.nodes {
			n.start()
		}
		require.Equal(t, state, c.agree())
	})
}

// A member that has applied many small records and then large ones gives up its log as well, and
// flushes no memtable in vain.
func TestTheLogIsGivenUpAfterRecordsHaveGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		n := c.leader()
		writeSmallRecords(n)
		for i := range 32 {
			n.put(keyOf(i%3), strings.Repeat("v", largeBytes))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		flushes := func() (sum uint64) {
			for _, p := range n.store.Stats().Partitions {
				sum += uint64(p.Flushes)
			}
			return sum
		}
		before := flushes()
		for i := range 10 {
			n.put(keyOf(i%3), "small")
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(t, flushes()-before, uint64(3), "flushes for ten small writes")
		assert.Less(t, logBytes(t, n.fs), int64(900<<10))
	})
}

func logBytes(t *testing.T, fs *vfs.Mem) (sum int64) {
	names, err := fs.List("data/wal")
	require.NoError(t, err)
	for _, name := range names {
		info, err := fs.Stat(path.Join("data/wal", name))
		require.NoError(t, err)
		sum += info.Size()
	}
	return sum
}

// The stores of a single node and of a member are not opened as each other, and a member whose
// log is gone, or lacks entries, does not start.
func TestAMemberDoesNotStartWithoutItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.fill(0, 20)
		n := c.follower()
		require.NoError(t, n.store.Flush(t.Context()))
		n.stop()

		_, err := engine.Open("data", engine.Options{FS: n.fs, LowDiskBytes: 1})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "member of a cluster")

		alone := &node{c: c, id: n.id, fs: vfs.NewMem()}
		single, err := engine.Open("data", engine.Options{FS: alone.fs, LowDiskBytes: 1, Partitions: 3})
		require.NoError(t, err)
		require.NoError(t, single.Close())
		err = alone.open()
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "single node")

		names, err := n.fs.List("data/wal")
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, n.fs.Remove(path.Join("data/wal", name)))
		}
		require.ErrorIs(t, n.open(), kv.ErrCorrupt)
	})
}

// A member loses power, and the end of its log with that, although the disk had synced it. Nothing
// in the rest of the log tells so, but a partition has saved a place after it: the member does not
// start, as it must not vote.
func TestAMemberWhoseLogEndsBeforeASavedPlaceDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		leader, n := c.leader(), c.follower()
		for i := range 3 {
			for range 10 {
				leader.put(keyOf(0), fmt.Sprint(i))
			}
			time.Sleep(time.Minute) // places that are saved are older than the span of request ids
		}
		require.Equal(t, "2", n.get(keyOf(0)))
		require.NoError(t, n.store.Flush(t.Context()))
		n.crash()
		f, err := n.fs.OpenReadWrite("data/wal/000001.raft")
		require.NoError(t, err)
		require.NoError(t, f.Truncate(1<<10))
		require.NoError(t, f.Close())
		err = n.open()
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorContains(t, err, "it has lost entries")
		n.store = nil
	})
}

// Tools for stopped stores take the store of a member for what it is.
func TestToolsKnowAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		c.fill(0, 60)
		n := c.nodes[0]
		require.NoError(t, n.store.Flush(t.Context()))
		c.fill(60, 20)
		c.stop()
		has := func(kind inspect.Kind, note string) *inspect.Report {
			report, err := inspect.Check(t.Context(), n.fs, "data", CheckLog, nil)
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(report.Files, func(f inspect.File) bool {
				return f.Kind == kind && strings.Contains(f.Note+f.Status, note)
			}), "%+v", report.Files)
			return report
		}
		require.NoError(t, has(inspect.KindLog, "not checked").Err(), "without NODE")
		writeNode(t, n)
		require.NoError(t, has(inspect.KindNode, "node 1 of cluster 0000000000000007").Err())
		require.NoError(t, has(inspect.KindLog, "the log ends at entry ").Err())
		flip(t, n.fs, "data/wal/000001.raft", 200)
		require.ErrorIs(t, has(inspect.KindLog, "corrupt").Err(), kv.ErrCorrupt)
		flip(t, n.fs, "data/wal/000001.raft", 200)
		flip(t, n.fs, "data/NODE", 30)
		require.ErrorIs(t, has(inspect.KindNode, "checksum").Err(), kv.ErrCorrupt)
		flip(t, n.fs, "data/NODE", 30)
		_, err := repair.Run(t.Context(), n.fs, "data", "repaired", repair.Options{})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "kvd cluster join --replace 1 ")
		_, err = repair.PlanInPlace(t.Context(), n.fs, "data", repair.InPlaceOptions{Scratch: "scratch"})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		flip(t, n.fs, "data/NODE", 30)
		_, err = repair.Run(t.Context(), n.fs, "data", "repaired", repair.Options{})
		require.ErrorContains(t, err, "kvd cluster join --replace NODE ")
		flip(t, n.fs, "data/NODE", 30)
		n.start()
		require.NotEmpty(t, n.get("key 7"))
		n.stop()
	})
}

// writeNode writes the NODE file of a stopped node.
func writeNode(t *testing.T, n *node) {
	d, err := descriptor.Read(n.fs, "data")
	require.NoError(t, err)
	node := descriptor.Node{StoreID: d.StoreID, Cluster: 7, Node: n.id, Members: map[uint64]string{n.id: "127.0.0.1:1"}}
	require.NoError(t, descriptor.WriteNode(n.fs, "data", &node))
}

// flip changes a bit of a file.
func flip(t *testing.T, fsys vfs.FS, name string, at int64) {
	f, err := fsys.OpenReadWrite(name)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, errors.Join(err, f.Close()))
}

// A scrub reads the segments of the log that are complete.
func TestAScrubReadsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, func(o *engine.Options) { o.SegmentBytes, o.MemtableBytes = 4<<10, 8<<20 })
		defer c.stop()
		n := c.nodes[0]
		c.fill(0, 200)
		segments := n.store.Stats().Log.Segments
		require.Greater(t, segments, 4)
		damaged := func() (files int, places []string) {
			require.NoError(t, n.store.Scrub(t.Context(), 0, func(step engine.ScrubStep) {
				if files = step.Files; step.Damage != nil {
					places = append(places, step.Damage.File)
				}
			}))
			return files, places
		}
		files, places := damaged()
		require.GreaterOrEqual(t, files, segments-1)
		require.Empty(t, places)
		flip(t, n.fs, "data/wal/000002.raft", 500)
		_, places = damaged()
		require.Equal(t, []string{"wal/000002.raft"}, places)
		flip(t, n.fs, "data/wal/000002.raft", 500)
	})
}

// The creation of a store may be interrupted at any step, and is repeated.
func TestAnInterruptedCreationIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, voters: []uint64{1}}
		n := &node{c: c, id: 1, fs: vfs.NewMem()}
		c.nodes = []*node{n}
		var images []*vfs.Mem
		var mu sync.Mutex
		n.fs.SetHook(func(vfs.Step) { // partitions are created concurrently
			mu.Lock()
			defer mu.Unlock()
			images = append(images, n.fs.CrashImage(vfs.KeepAll, nil))
		})
		n.start()
		n.fs.SetHook(nil)
		n.stop()
		require.NotEmpty(t, images)
		for i := 0; i < len(images); i += 7 {
			n.fs = images[i]
			n.start()
			c.leader().put("a", "1")
			require.Equal(t, "1", n.get("a"))
			n.stop()
		}
	})
}
