package replicated

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// restored backs a node up, restores that, and opens it as the store of a single node.
func (n *node) restored() (*engine.Engine, *backup.Manifest) {
	t := n.c.t
	checkpoint, err := n.store.Checkpoint(t.Context(), 0)
	require.NoError(t, err)
	var stream bytes.Buffer
	m, err := backup.WriteStream(t.Context(), &stream, checkpoint, time.Now(), backup.Options{})
	require.NoError(t, err)
	checkpoint.Release()
	fsys := vfs.NewMem()
	_, err = backup.RestoreStream(t.Context(), &stream, nil, fsys, "data", backup.Options{})
	require.NoError(t, err)
	report, err := inspect.Check(t.Context(), fsys, "data", CheckLog, nil)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	single, err := engine.Open("data", engine.Options{FS: fsys, MemtableBytes: 256 << 10, LowDiskBytes: 1})
	require.NoError(t, err)
	return single, m
}

// A backup of any node is the store of a single node, with the same keys at the same versions.
func TestABackupOfAMemberIsAStoreOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		c.fill(0, 60)
		for _, n := range c.nodes {
			require.NoError(t, n.store.Flush(t.Context()))
		}
		c.fill(60, 20)
		_, err := c.leader().store.Put(t.Context(), []byte("expires"), []byte("x"), kv.WriteOptions{})
		require.NoError(t, err)
		w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("expires"), Value: []byte("soon"), Expiry: c.leader().store.Now() + 500}}
		require.NoError(t, c.leader().store.Write(t.Context(), []*kv.Write{w}))
		require.NoError(t, w.Err)
		time.Sleep(3 * time.Second) // the leader sets the clock meanwhile
		state := c.agree()
		require.NotContains(t, state, "expires")
		for _, n := range c.nodes {
			single, m := n.restored()
			alone := &node{c: c, id: 9, store: single}
			version, got := alone.digest()
			require.GreaterOrEqual(t, version, m.Version)
			require.Equal(t, state, got, "node %d", n.id)
			put, err := single.Put(t.Context(), []byte("new"), []byte("x"), kv.WriteOptions{})
			require.NoError(t, err)
			require.Greater(t, put, m.Version)
			require.NoError(t, single.Close())
		}
		require.Zero(t, c.leader().store.Stats().Checkpoints)
	})
}

// While batches over all partitions are written, a backup has each of them whole, and all that
// was acknowledged before it began.
func TestABackupOfAMemberIsOneVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, func(o *engine.Options) { o.MemtableBytes = 64 << 10 })
		defer c.stop()
		leader := c.leader()
		done := make(chan struct{})
		var mu sync.Mutex
		acknowledged := uint64(0)
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := uint64(1); ; i++ {
				select {
				case <-done:
					return
				default:
				}
				var b kv.WriteBatch
				for p := range 3 {
					b.Put([]byte(keyOf(p)), append(binary.LittleEndian.AppendUint64(nil, i), strings.Repeat("v", 200)...))
				}
				if _, err := leader.store.Apply(t.Context(), &b, kv.WriteOptions{}); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged = i
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
		rounds := 6
		if testsize.Reduced() {
			rounds = 3
		}
		for round := range rounds {
			time.Sleep(300 * time.Millisecond)
			n := c.nodes[round%3]
			mu.Lock()
			least := acknowledged
			mu.Unlock()
			single, _ := n.restored()
			found := map[uint64]bool{}
			for p := range 3 {
				item, err := single.Get(t.Context(), []byte(keyOf(p)))
				require.NoError(t, err)
				found[binary.LittleEndian.Uint64(item.Value)] = true
			}
			require.Len(t, found, 1, "node %d: a batch is in it in parts", n.id)
			for i := range found {
				require.GreaterOrEqual(t, i, least, fmt.Sprint("node ", n.id))
			}
			require.NoError(t, single.Close())
		}
		close(done)
		writer.Wait()
	})
}

// writeSmallRecords writes many by n while no time passes, so that none of the log is given up. It is no
// method: testsize/reduced takes every test that mentions a type for one that takes a sample if a method
// of the type does.
func writeSmallRecords(n *node) {
	records := 70_000
	if testsize.Reduced() {
		records = 2_000
	}
	for i := range records {
		n.put(fmt.Sprint("key ", i%100), "small")
	}
	time.Sleep(3 * time.Second)
}

const largeBytes = 48 << 10

// A member that has applied many small records and then large ones can be backed up.
func TestABackupOfAMemberAfterRecordsHaveGrown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		n := c.leader()
		writeSmallRecords(n)
		backups := 40
		if testsize.Reduced() {
			backups = 10
		}
		for i := range backups {
			want := fmt.Sprint(i, strings.Repeat("v", largeBytes))
			version := n.put(keyOf(i%3), want)
			single, m := n.restored()
			require.Equal(t, want, (&node{c: c, id: 9, store: single}).get(keyOf(i%3)))
			require.GreaterOrEqual(t, m.Version, version)
			require.NoError(t, single.Close())
		}
	})
}
