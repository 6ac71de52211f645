package replicated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace/pacetest"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (n *node) report(e Event) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.events = append(n.c.events, e)
}

// happened returns how many events have such a text, those with an error or those without.
func (c *cluster) happened(what string, failed bool) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if strings.Contains(e.What, what) && failed == (e.Err != nil) {
			count++
		}
	}
	return count
}

// fetched is a checkpoint of another node, over the network in memory.
type fetched struct {
	*Transfer
	c        *cluster
	from, to *node
}

func (f fetched) Fetch(ctx context.Context, name string, known []uint64) (uint64, io.Reader, error) {
	f.c.mu.Lock()
	fetch := f.c.fetch
	f.c.mu.Unlock()
	if fetch != nil {
		if err := fetch(f.from.id, f.to.id, name); err != nil {
			return 0, nil, err
		}
	}
	if f.from.dead.Load() || f.to.dead.Load() {
		return 0, nil, errors.New("the connection is lost")
	}
	sum, content, err := f.Transfer.Fetch(ctx, name, known)
	if err == nil && content == nil {
		f.c.mu.Lock()
		f.c.kept++
		f.c.mu.Unlock()
	}
	return sum, content, err
}

func (f fetched) Close() error {
	f.Release()
	return nil
}

// files fetches a checkpoint of another node.
func (n *node) files(ctx context.Context, id uint64, token []byte) (Files, error) {
	from := n.c.nodes[id-1]
	from.mu.Lock()
	log := from.log
	from.mu.Unlock()
	if log == nil {
		return nil, errors.New("the node does not answer")
	}
	t, err := log.OpenCheckpoint(ctx, n.id, token)
	if err != nil {
		return nil, err
	}
	return fetched{t, n.c, from, n}, nil
}

// giveUpLog writes until the nodes that run have given up the log.
func (c *cluster) giveUpLog(round int) {
	value := strings.Repeat("v", 4<<10)
	for i := range 60 {
		c.leader().put(fmt.Sprintf("key %d", i), fmt.Sprint(round, value))
		if i%20 == 19 {
			for _, n := range c.nodes {
				if n.store != nil {
					require.NoError(c.t, n.store.Flush(c.t.Context()))
				}
			}
			time.Sleep(2 * time.Second)
		}
	}
	time.Sleep(40 * time.Second) // the span of request ids
	for i := range 30 {
		c.leader().put(fmt.Sprintf("key %d", i), fmt.Sprint(round, value))
	}
	for _, n := range c.nodes {
		if n.store != nil {
			require.NoError(c.t, n.store.Flush(c.t.Context()))
		}
	}
	time.Sleep(5 * time.Second)
}

// awaitInstall waits until a node has ended to install a checkpoint, and starts it again.
func (n *node) awaitInstall() {
	select {
	case <-n.store.Failed():
	case <-time.After(10 * time.Minute):
		require.Fail(n.c.t, "no checkpoint came", "%+v", n.c.events)
	}
	n.install()
}

// install starts a node again whose log begins at the position of a checkpoint.
func (n *node) install() {
	<-n.store.Failed() // soon, if it is not already
	require.ErrorIs(n.c.t, n.store.Err(), replica.ErrInstall)
	n.stop()
	n.start()
}

// catchUp waits until a node answers reads, and starts it again whenever it has a checkpoint to
// install.
func (n *node) catchUp() {
	for {
		_, err := n.store.Get(c(n), []byte("absent"))
		if errors.Is(err, kv.ErrNotFound) {
			return
		}
		require.ErrorIs(n.c.t, err, replica.ErrInstall, "node %d", n.id)
		n.install()
	}
}

// smallLog lets nodes give up the log soon. The three memtables of a node have 16 KiB each with their
// first entry: with less memory they would be above their share, half of it, after each write, and each
// write would flush one.
func smallLog(o *engine.Options) { o.SegmentBytes, o.MemtableBytes = 16<<10, 112<<10 }

// A node that was away for so long that the others have given up the log gets a checkpoint, and
// continues with the log.
func TestANodeThatWasAwayGetsACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		c.fill(0, 100)
		n := c.follower()
		n.stop()
		c.giveUpLog(1)
		n.start()
		n.awaitInstall()
		c.leader().put("later", "value")
		state := c.agree()
		require.Contains(t, state, "later=value")
		require.Equal(t, 1, c.happened("received", false))
		n.crash()
		c.fill(0, 10)
		n.start()
		c.agree()
		require.Equal(t, 1, c.happened("received", false), "the log was enough")
		_, err := n.fs.Stat("data/incoming")
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// A node reads the files of a checkpoint for another node no faster than the rate of that: neither to
// verify them nor to send them.
func TestACheckpointForANodeIsReadAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var meters []*pacetest.Meter
		c := startCluster(t, 3, func(o *engine.Options) {
			smallLog(o)
			m := &pacetest.Meter{FS: o.FS}
			meters, o.FS = append(meters, m), m
		})
		defer c.stop()
		values, size := 512, 32<<10
		if testsize.Reduced() {
			values = 32
		}
		for i := range values {
			c.leader().put(fmt.Sprintf("large %d", i), strings.Repeat(fmt.Sprint(i%10), size))
		}
		n := c.follower()
		c.lag(n)
		time.Sleep(time.Minute)
		others := slices.Clone(meters)
		for _, m := range others {
			m.Reset()
		}
		n.start()
		n.awaitInstall()
		read := int64(0)
		for _, m := range others {
			bytes, took := m.Total()
			read = max(read, bytes)
			const within, largestRead = 50 * time.Millisecond, 256 << 10
			require.LessOrEqual(t, m.Most(within), int64(transferRate*(within.Seconds()+0.04))+largestRead, "%d bytes in %v", bytes, took)
		}
		// A file is read to verify it and, unless the node has one with that checksum, to send it.
		require.Greater(t, read, int64(values*size*3/2))
		c.agree()
	})
}

// lag stops a node and lets the others give up the log that it needs.
func (c *cluster) lag(n *node) {
	c.fill(0, 100)
	n.stop()
	c.giveUpLog(1)
}

// handOver hands the leadership over while one node is stopped: to a node that knows nothing of what
// that one has acknowledged.
func (c *cluster) handOver() {
	time.Sleep(2 * time.Second)
	_, err := c.leader().log.HandOver(c.t.Context())
	require.NoError(c.t, err)
}

// Power is lost at any step: while a checkpoint is fetched, while the log begins anew, and while
// the files take their places. The node starts with the old state and the old log or with the new
// ones, never at a term before one in which it may have voted, and comes to the state of the
// others.
func TestPowerIsLostWhileACheckpointIsInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		n.start()
		term := n.log.Status().Term
		rng := rand.New(rand.NewPCG(1, 1))
		var images []*vfs.Mem
		var mu sync.Mutex
		n.fs.SetHook(func(vfs.Step) {
			mu.Lock()
			defer mu.Unlock()
			images = append(images, n.fs.CrashImage(vfs.CrashPolicies[len(images)%len(vfs.CrashPolicies)], rng))
		})
		n.awaitInstall()
		n.fs.SetHook(nil)
		c.agree()
		every := max(1, len(images)/40)
		if testsize.Reduced() {
			every = len(images) / 4
		}
		received := func(image *vfs.Mem) bool {
			incoming, err := backup.Received(image, "data")
			return err == nil && incoming != nil
		}
		one := slices.IndexFunc(images, received) // the sample need not have one
		tried, begun, installed := 0, 0, 0
		for i, image := range images {
			if i != one && (len(images)-1-i)%every != 0 { // in the last one the log says so
				continue
			}
			tried++
			before := c.happened("received", false)
			n.stop()
			c.handOver()
			n.fs = image
			if received(image) {
				begun++
			}
			n.start()
			require.GreaterOrEqual(t, n.log.Status().Term, term, "image %d", i)
			n.catchUp()
			if c.happened("received", false) == before {
				installed++
			}
			c.agree()
		}
		t.Logf("%d images: in %d all was received, in %d the log said so", tried, begun, installed)
		require.NotZero(t, begun)
		require.NotZero(t, installed)
	})
}

// A node has received all of a checkpoint, and is killed before its log begins anew. It starts with
// the old state, which fits the log.
func TestWhatWasReceivedIsNotInstalledBeforeTheLogSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		n.start()
		var mu sync.Mutex
		var image *vfs.Mem
		n.fs.SetHook(func(vfs.Step) {
			mu.Lock()
			defer mu.Unlock()
			if _, err := n.fs.Stat("data/incoming/COMPLETE"); err == nil && image == nil {
				image = n.fs.KillImage()
			}
		})
		n.awaitInstall()
		n.fs.SetHook(nil)
		n.stop()
		require.NotNil(t, image)
		_, err := backup.Received(image, "data")
		require.NoError(t, err)
		c.handOver()
		n.fs = image
		n.start()
		n.catchUp()
		c.agree()
		require.Equal(t, 2, c.happened("received", false))
	})
}

// A node whose log begins at the position of a checkpoint that is gone does not start.
func TestANodeDoesNotStartWithoutItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		n.start()
		<-n.store.Failed()
		require.ErrorIs(t, n.store.Close(), replica.ErrInstall)
		n.store = nil
		whole := n.fs.CrashImage(vfs.DropAll, nil)

		in, err := backup.Received(n.fs, "data")
		require.NoError(t, err)
		for _, f := range in.Files {
			if strings.HasPrefix(f.Name, "p-0001/") {
				require.NoError(t, n.fs.Remove("data/incoming/"+f.Name))
			}
		}
		err = n.open()
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorContains(t, err, "checkpoint of another node")
		require.ErrorContains(t, err, "missing")

		n.fs = whole
		require.NoError(t, backup.RemoveIncoming(n.fs, "data"))
		err = n.open()
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorContains(t, err, "the entries between are missing")
		n.store = nil
	})
}

// The disk fills while the log begins anew, after the frame that says where. The store fails, and
// what was received stays: when the node starts again, its log does begin there.
func TestADiskFillsAsTheLogBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const firstFrame = 160 // less than both frames have
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		before := n.firstIndex()
		n.start()
		n.fs.SetHook(func(s vfs.Step) {
			if s.Kind != vfs.StepWrite || !strings.HasPrefix(s.Name, "data/wal/") {
				return
			}
			if _, err := n.fs.Stat("data/incoming/COMPLETE"); err == nil {
				u, err := n.fs.Usage("data")
				require.NoError(t, err)
				n.fs.SetCapacity(int64(u.Total-u.Free) + firstFrame)
			}
		})
		<-n.store.Failed()
		synctest.Wait()
		require.True(t, vfs.IsNoSpace(n.store.Err()), "%v", n.store.Err())
		require.Error(t, n.store.Close())
		n.fs.SetHook(nil)
		n.fs.SetCapacity(math.MaxInt64)
		require.NotZero(t, c.happened("checkpoint of a node", true))
		require.Greater(t, n.firstIndex(), before, "the log begins at the position of the checkpoint")
		n.start()
		n.catchUp()
		c.agree()
	})
}

// A node that vanishes in the middle of a transfer holds neither files nor the log of the leader
// for longer than the lease.
func TestANodeThatVanishesHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		fetching := make(chan struct{})
		c.onFetch(func(_, _ uint64, name string) error {
			if strings.HasSuffix(name, ".sst") {
				close(fetching)
				c.onFetch(func(_, _ uint64, _ string) error { return errors.New("the connection is lost") })
				return errors.New("the connection is lost")
			}
			return nil
		})
		n.start()
		<-fetching
		leader := c.leader()
		require.Equal(t, 1, leader.store.Stats().Checkpoints)
		n.stop()
		time.Sleep(offerLease + 5*time.Second)
		require.Zero(t, leader.store.Stats().Checkpoints)
		before := leader.firstIndex()
		c.giveUpLog(2)
		require.Greater(t, leader.firstIndex(), before)
		c.onFetch(nil)
		n.start()
		n.catchUp()
		c.agree()
	})
}

func (c *cluster) onFetch(fetch func(from, to uint64, name string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetch = fetch
}

// firstIndex returns the index at which the log of a stopped or running node begins.
func (n *node) firstIndex() uint64 {
	image := n.fs.CrashImage(vfs.KeepAll, nil)
	log := New(Config{Cluster: 7, Node: n.id})
	begin, err := log.Open(engine.LogFiles{FS: image, Dir: "data/wal", Data: "data"})
	require.NoError(n.c.t, err)
	first, err := log.file.Group(Group).FirstIndex()
	require.NoError(n.c.t, err)
	require.LessOrEqual(n.c.t, begin.Index, first)
	require.NoError(n.c.t, log.file.Close())
	return first
}

// A node restarts in the middle of a transfer, and fetches only the rest.
func TestANodeRestartsInMidTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		cut := make(chan struct{})
		files := map[string]int{}
		c.onFetch(func(_, to uint64, name string) error {
			if strings.HasPrefix(name, "p-0002/") {
				c.onFetch(func(_, _ uint64, name string) error { return errors.New("the connection is lost") })
				close(cut)
				return errors.New("the connection is lost")
			}
			files[name]++
			return nil
		})
		n.start()
		<-cut
		n.stop()
		require.Zero(t, c.kept)
		c.onFetch(nil)
		n.start()
		n.catchUp()
		c.agree()
		total := 0
		for name := range files {
			if strings.HasSuffix(name, ".sst") {
				total++
			}
		}
		require.NotZero(t, total)
		require.Positive(t, c.kept, "files of the first attempt were used")
	})
}

// The leader crashes in the middle of a transfer. The next one offers a checkpoint of its own.
func TestTheLeaderChangesInMidTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		cut := make(chan uint64, 1)
		c.onFetch(func(from, _ uint64, name string) error {
			if strings.HasPrefix(name, "p-0001/") {
				c.onFetch(nil)
				c.nodes[from-1].powerFails()
				cut <- from
				return errors.New("the connection is lost")
			}
			return nil
		})
		n.start()
		old := c.nodes[<-cut-1]
		old.crash()
		n.catchUp() // the two others are a majority
		require.NotEqual(t, old.id, c.leader().id)
		c.leader().put("without the old leader", "value")
		old.start()
		old.catchUp()
		require.Contains(t, c.agree(), "without the old leader=value")
	})
}

// A node leads alone, so that what it proposes is never committed, while the others give up the
// log. A checkpoint takes the place of its log.
func TestACheckpointOntoADivergingLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		c.fill(0, 50)
		old := c.leader()
		c.cutOff(old.id)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := old.store.Put(ctx, fmt.Appendf(nil, "lost %d", i), []byte("x"), kv.WriteOptions{})
			require.Error(t, err)
			cancel()
		}
		old.stop()
		c.lose(nil)
		c.leader()
		c.giveUpLog(1)
		old.start()
		old.awaitInstall()
		old.catchUp()
		require.NotContains(t, c.agree(), "lost")
	})
}

// A node that joins has no log at all. It gets a checkpoint, and then votes.
func TestANewNodeGetsACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, smallLog)
		defer c.stop()
		c.fill(0, 60)
		joins := &node{c: c, id: 2, fs: vfs.NewMem(), joins: true}
		c.mu.Lock()
		c.nodes = append(c.nodes, joins)
		c.mu.Unlock()
		joins.start()
		time.Sleep(3 * time.Second)
		require.Zero(t, joins.log.Status().Term, "it has given no vote, not even to itself")
		leader := c.leader(joins.id)
		require.NoError(t, leader.log.running().Reconfigure(t.Context(), replica.Change{Kind: replica.AddLearner, Node: joins.id}))
		joins.awaitInstall()
		joins.catchUp()
		require.NoError(t, leader.log.running().Reconfigure(t.Context(), replica.Change{Kind: replica.Promote, Node: joins.id}))
		c.fill(60, 10)
		joins.crash()
		joins.start()
		joins.catchUp()
		c.agree()
	})
}

// The newest record before the position of a checkpoint may have no key, as the first one of a
// tenure. The node that installs it shows what comes next all the same.
func TestACheckpointAfterARecordWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, smallLog)
		defer c.stop()
		c.fill(0, 60)
		n := c.nodes[0]
		n.stop()
		n.start()
		leader := c.leader()
		joins := &node{c: c, id: 2, fs: vfs.NewMem(), joins: true}
		c.mu.Lock()
		c.nodes = append(c.nodes, joins)
		c.mu.Unlock()
		joins.start()
		require.NoError(t, leader.log.running().Reconfigure(t.Context(), replica.Change{Kind: replica.AddLearner, Node: joins.id}))
		joins.awaitInstall()
		answers := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := joins.store.Get(ctx, []byte("absent"))
			return err
		}
		require.ErrorIs(t, answers(), kv.ErrNotFound)
		leader.put("next", "value")
		require.ErrorIs(t, answers(), kv.ErrNotFound)
		require.Contains(t, c.agree(), "next=value")
	})
}

// Request ids come with a checkpoint: a node that leads after it recognises a write that is sent
// again.
func TestACheckpointHasTheRequestIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		write := func(n *node, retried bool) *kv.Write {
			w := &kv.Write{
				Op:        kv.Op{Kind: kv.KindPut, Key: []byte("named"), Value: []byte("value")},
				RequestID: kv.RequestID{ClientID: 1, Sequence: 1, Retried: retried},
			}
			require.NoError(t, n.store.Write(t.Context(), []*kv.Write{w}))
			return w
		}
		first := write(c.leader(), false)
		require.NoError(t, first.Err)
		n.start()
		n.awaitInstall()
		n.catchUp()
		for c.leader() != n {
			_, err := c.leader().log.running().TransferTo(t.Context(), n.id)
			require.NoError(t, err)
		}
		again := write(n, true)
		require.NoError(t, again.Err)
		require.Equal(t, first.Version, again.Version, "it was not written twice")
	})
}

// While a node fetches a checkpoint the leader keeps the log after its position, however much is
// written.
func TestTheLogIsKeptForACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		n := c.follower()
		c.lag(n)
		begun, goOn := make(chan struct{}), make(chan struct{})
		c.onFetch(func(_, _ uint64, name string) error {
			if strings.HasSuffix(name, ".sst") {
				c.onFetch(nil)
				close(begun)
				<-goOn
			}
			return nil
		})
		n.start()
		<-begun
		c.giveUpLog(2)
		if !testsize.Reduced() {
			c.giveUpLog(3)
		}
		close(goOn)
		n.awaitInstall()
		n.catchUp()
		c.agree()
		require.Equal(t, 1, c.happened("received", false), "the log was enough after that")
	})
}

// A node that was away for a short time gets the log, also what the leader would have given up.
func TestAShortAbsenceNeedsNoCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, smallLog)
		defer c.stop()
		c.fill(0, 50)
		n := c.follower()
		n.stop()
		c.fill(50, 100)
		for _, other := range c.nodes {
			if other.store != nil {
				require.NoError(t, other.store.Flush(t.Context()))
			}
		}
		time.Sleep(time.Minute)
		n.start()
		n.catchUp()
		c.agree()
		require.Zero(t, c.happened("received", false))
		require.Zero(t, c.happened("made", false))
	})
}
