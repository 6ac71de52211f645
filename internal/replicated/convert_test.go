package replicated

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// singleOptions are those of the store of a single node. All of its log fits into three segments.
func singleOptions(fsys vfs.FS) engine.Options {
	return engine.Options{FS: fsys, Partitions: 3, MemtableBytes: 256 << 10, CacheBytes: 64 << 10, SegmentBytes: 64 << 10, LowDiskBytes: 1}
}

// single is the store of a single node, while it is open.
type single struct {
	*node
	t *testing.T
}

// openSingle opens the store of a single node.
func openSingle(t *testing.T, fsys *vfs.Mem) *single {
	store, err := engine.Open("data", singleOptions(fsys))
	require.NoError(t, err)
	return &single{&node{c: &cluster{t: t}, fs: fsys, store: store}, t}
}

// state returns all that can be read, with versions and expiries.
func (s *single) state() string {
	_, state := s.digest()
	return state
}

func (s *single) close() { require.NoError(s.t, s.store.Close()) }

// named writes under a request id.
func named(t *testing.T, store *engine.Engine, sequence uint64, retried bool) (kv.SeqNum, error) {
	w := &kv.Write{
		Op:        kv.Op{Kind: kv.KindPut, Key: fmt.Append(nil, "named ", sequence), Value: []byte("value")},
		RequestID: kv.RequestID{ClientID: 1, Sequence: sequence, Retried: retried},
	}
	if err := store.Write(t.Context(), []*kv.Write{w}); err != nil {
		return 0, err
	}
	return w.Version, w.Err
}

// fill writes what a store can hold, to tables and to the log. One key has expired after it.
func (s *single) fill() {
	for i := range 40 {
		s.put(fmt.Sprintf("key %02d", i), strings.Repeat(fmt.Sprint(i), 1+i%20))
	}
	_, err := s.store.Apply(s.t.Context(), expiring("expires", 4_102_444_800_000), kv.WriteOptions{})
	require.NoError(s.t, err)
	_, err = s.store.Apply(s.t.Context(), expiring("expired", s.store.Now()+1000), kv.WriteOptions{})
	require.NoError(s.t, err)
	require.Equal(s.t, "value", s.get("expired"))
	require.NoError(s.t, s.store.Flush(s.t.Context()))
	time.Sleep(2 * time.Second)
	batch := &kv.WriteBatch{}
	for p := range 3 {
		batch.Put([]byte(keyOf(p)), []byte("of a batch"))
	}
	batch.DeleteRange([]byte("key 10"), []byte("key 15"))
	_, err = s.store.Apply(s.t.Context(), batch, kv.WriteOptions{})
	require.NoError(s.t, err)
	_, err = s.store.Delete(s.t.Context(), []byte("key 39"), kv.WriteOptions{})
	require.NoError(s.t, err)
	s.put("large", strings.Repeat("v", 3000))
}

// converted is what Convert makes of a store here.
func converted() descriptor.Node {
	return descriptor.Node{Cluster: 7, Node: 1, Members: map[uint64]string{1: "one:1"}}
}

// first returns the node that a converted store is, which is not started, in a cluster of its own.
func first(t *testing.T, fsys *vfs.Mem) *node {
	n := &node{c: &cluster{t: t}, id: 1, fs: fsys}
	n.c.nodes = []*node{n}
	return n
}

// A store with data becomes a cluster of one: nothing of it is lost, and a write that is sent again
// is not applied twice. Other nodes join, and get the data.
func TestAStoreBecomesTheFirstMember(t *testing.T) {
	for name, down := range map[string]func(*single){
		"closed in order": (*single).close,
		// The numbers have gaps, in the middle of the log and at its end.
		"killed twice": func(s *single) {
			image := s.fs.KillImage()
			s.close()
			again := openSingle(s.t, image)
			again.put("after a kill", "value")
			s.fs = image.KillImage()
			again.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openSingle(t, vfs.NewMem())
				s.fill()
				version, err := named(t, s.store, 1, false)
				require.NoError(t, err)
				id := s.store.Descriptor().StoreID
				down(s)
				again := openSingle(t, s.fs)
				want := again.state()
				again.close()
				require.Contains(t, want, "expires=value")
				require.NotContains(t, want, "expired=")
				require.NoError(t, Convert("data", singleOptions(s.fs), converted()))

				_, err = engine.Open("data", singleOptions(s.fs))
				require.ErrorIs(t, err, kv.ErrInvalidArgument)
				require.ErrorContains(t, err, "member of a cluster")
				n := first(t, s.fs)
				defer n.c.stop()
				n.start()
				require.False(t, descriptor.HasOwnLog(n.fs, "data"))
				require.Equal(t, id, n.store.Descriptor().StoreID)
				n.c.leader()
				require.Equal(t, want, n.c.agree())
				repeated, err := named(t, n.store, 1, true)
				require.NoError(t, err)
				require.Equal(t, version, repeated, "it was not applied again")
				require.Greater(t, n.put("later", "value"), version)
				for p := range 3 { // conditions see what the store had
					w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(keyOf(p)), Value: []byte("x")}, If: &kv.Condition{Kind: kv.IfValue, Value: []byte("of a batch")}}
					require.NoError(t, n.store.Write(t.Context(), []*kv.Write{w}))
					require.NoError(t, w.Err)
				}
				n.crash()
				n.start()

				// A node that joins knows no voters of a beginning. One that is made as if the history
				// began with nothing must get the data all the same.
				n.c.leader()
				require.Empty(t, n.log.Configuration().First)
				for _, voters := range [][]uint64{n.log.Configuration().First, {1}} {
					n.c.voters = voters
					joins := n.c.add(fmt.Sprint(len(n.c.nodes)+1, ":1"), 0)
					joins.start()
					joins.awaitInstall()
					n.c.promoted(joins.id)
					n.c.leader().put(fmt.Sprint("with ", joins.id), "value")
					state := n.c.agree()
					require.True(t, strings.Contains(state, "expires=value") && strings.Contains(state, "later=value") && !strings.Contains(state, "expired="))
				}
				require.Len(t, n.c.votersNow(), 3)
			})
		})
	}
}

// The records that the log of the cluster takes over are bounded. The outcome of older writes is not
// known any more, and they are not applied again.
func TestAStoreWithALongLogBecomesAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		o := singleOptions(disk)
		o.SegmentBytes, o.MemtableBytes = 16<<10, 1<<20
		store, err := engine.Open("data", o)
		require.NoError(t, err)
		s := &single{&node{c: &cluster{t: t}, fs: disk, store: store}, t}
		_, err = named(t, store, 1, false)
		require.NoError(t, err)
		for i := range 100 {
			s.put(fmt.Sprint("key ", i), strings.Repeat("v", 1000))
		}
		version, err := named(t, store, 2, false)
		require.NoError(t, err)
		want := s.state()
		s.close()
		require.NoError(t, Convert("data", o, converted()))
		n := first(t, disk)
		defer n.c.stop()
		n.c.tune = func(to *engine.Options) { to.SegmentBytes, to.MemtableBytes = o.SegmentBytes, o.MemtableBytes }
		n.start()
		n.c.leader()
		_, err = named(t, n.store, 1, true)
		require.ErrorIs(t, err, kv.ErrUncertain)
		again, err := named(t, n.store, 2, true)
		require.NoError(t, err)
		require.Equal(t, version, again)
		require.Equal(t, want, n.c.agree())
	})
}

// goesOn fails unless a store whose conversion was interrupted is what it was: that of a single
// node, which can be converted again, or that of a member. It reports which of both.
func goesOn(t *testing.T, disk *vfs.Mem, want string, openFirst bool) (member bool) {
	report, err := inspect.Check(t.Context(), disk, "data", CheckLog, nil)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	_, err = disk.Stat(descriptor.NodePath("data"))
	if member = err == nil; member {
		_, err := engine.Open("data", singleOptions(disk))
		require.ErrorContains(t, err, "member of a cluster")
	} else {
		if openFirst {
			s := openSingle(t, disk)
			require.Equal(t, want, s.state())
			s.put("in between", "value")
			want = s.state()
			s.close()
			require.False(t, descriptor.HasReplicatedLog(disk, "data"))
		}
		require.NoError(t, Convert("data", singleOptions(disk), converted()))
	}
	n := first(t, disk)
	n.start()
	defer n.c.stop()
	n.c.leader()
	require.Equal(t, want, n.c.agree())
	require.False(t, descriptor.HasOwnLog(disk, "data"))
	return member
}

// interrupted returns a store that can be converted, and what can be read of it.
func interrupted(t *testing.T) (disk *vfs.Mem, want string) {
	s := openSingle(t, vfs.NewMem())
	s.fill()
	want = s.state()
	s.close()
	return s.fs, want
}

// Power is lost at any step of a conversion, and of the first start as a member.
func TestPowerIsLostWhileAStoreBecomesAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, want := interrupted(t)
		rng := rand.New(rand.NewPCG(1, 1))
		var near, others []*vfs.Mem // the decision, with the logs before and after it; the other steps
		var mu sync.Mutex
		disk.SetHook(func(s vfs.Step) {
			mu.Lock()
			defer mu.Unlock()
			image := disk.CrashImage(vfs.CrashPolicies[(len(near)+len(others))%len(vfs.CrashPolicies)], rng)
			switch {
			case strings.Contains(s.Name, ".raft"), strings.Contains(s.Name, "NODE"), s.Name == "data/wal", s.Name == "data", s.Kind == vfs.StepRemove:
				near = append(near, image)
			default:
				others = append(others, image)
			}
		})
		require.NoError(t, Convert("data", singleOptions(disk), converted()))
		n := first(t, disk)
		n.start()
		n.c.stop()
		disk.SetHook(nil)
		require.Greater(t, len(near), 15)
		every := 1
		if testsize.Reduced() {
			every = 5
		}
		single, member := 0, 0
		all := append(near, others...) // the first one is the store of a single node, the last one a member
		for i, image := range all {
			if i < len(all)-1 && (i >= len(near) && i%(4*every) != 0 || i%every != 0) {
				continue
			}
			if goesOn(t, image, want, i/every%2 == 0) {
				member++
			} else {
				single++
			}
		}
		require.NotZero(t, single)
		require.NotZero(t, member)
	})
}

// An operation of the file system fails, at any step.
func TestADiskFailsWhileAStoreBecomesAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, want := interrupted(t)
		count := faultfs.Wrap(disk.KillImage(), nil)
		require.NoError(t, Convert("data", singleOptions(count), converted()))
		every := max(1, count.Count()/40)
		if testsize.Reduced() {
			every = count.Count() / 8
		}
		failed := 0
		for i := 0; i < count.Count(); i += every {
			image := disk.KillImage()
			if err := Convert("data", singleOptions(faultfs.Wrap(image, faultfs.FailAt(i, syscall.EIO, false))), converted()); err != nil {
				require.ErrorContains(t, err, "make store data a member of a cluster")
				failed++
			}
			goesOn(t, image, want, i/every%2 == 0)
		}
		require.Greater(t, failed, 5)
	})
}

func TestStoresThatCannotBecomeMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, want := interrupted(t)
		refused := func(fsys vfs.FS, as error, text string, change func(*engine.Options, *descriptor.Node)) {
			t.Helper()
			o, node := singleOptions(fsys), converted()
			if change != nil {
				change(&o, &node)
			}
			err := Convert("data", o, node)
			require.ErrorIs(t, err, as)
			require.ErrorContains(t, err, text)
		}
		refused(vfs.NewMem(), kv.ErrInvalidArgument, "no store is there", nil)
		refused(disk, kv.ErrInvalidArgument, "the others join it", func(_ *engine.Options, n *descriptor.Node) { n.Members[2] = "two:1" })
		refused(disk, kv.ErrInvalidArgument, "is no id of a node", func(_ *engine.Options, n *descriptor.Node) { n.Node = 0 })
		refused(disk, kv.ErrInvalidArgument, "archive", func(o *engine.Options, _ *descriptor.Node) { o.Archive.Dir = "archive" })
		refused(disk, kv.ErrInvalidArgument, "cannot be opened with 2", func(o *engine.Options, _ *descriptor.Node) { o.Partitions = 2 })
		refused(disk, kv.ErrInvalidArgument, "read-only", func(o *engine.Options, _ *descriptor.Node) { o.ReadOnly = true })
		refused(disk, syscall.ENOSPC, "free space and repeat", func(o *engine.Options, _ *descriptor.Node) { o.LowDiskBytes = 1<<63 - 1 })
		unwritable := faultfs.Wrap(disk, faultfs.FailAt(0, syscall.EROFS, true, faultfs.OnKind(faultfs.OpenReadWrite)))
		refused(unwritable, syscall.EROFS, "mount it writable", nil)

		s := openSingle(t, disk)
		refused(disk, vfs.ErrLocked, "", nil)
		require.Equal(t, want, s.state())
		s.close()

		damaged := disk.KillImage()
		flip(t, damaged, "data/p-0001/CURRENT", 20)
		refused(damaged, kv.ErrCorrupt, "CURRENT", nil)

		// A member without its log is none that can be converted, nor is one without NODE.
		member := disk.KillImage()
		require.NoError(t, Convert("data", singleOptions(member), converted()))
		n := first(t, member)
		n.start()
		n.c.stop()
		refused(member, kv.ErrInvalidArgument, "open it as that", nil)
		require.NoError(t, member.Remove(descriptor.NodePath("data")))
		refused(member, kv.ErrInvalidArgument, "open it as that", nil)
		goesOnAlone(t, disk, want)
	})
}

// goesOnAlone fails unless the store is that of a single node, with what it had.
func goesOnAlone(t *testing.T, disk *vfs.Mem, want string) {
	s := openSingle(t, disk)
	require.Equal(t, want, s.state())
	s.close()
}

// NODE and the log of a member that were copied to the store of a single node make it no member: the
// log of that has writes which no table has.
func TestNodeOfAnotherStoreDeletesNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, want := interrupted(t)
		member := disk.KillImage()
		require.NoError(t, Convert("data", singleOptions(member), converted()))
		for _, name := range []string{"NODE", "wal/000001.raft"} {
			copyFile(t, member, disk, path.Join("data", name))
		}
		err := first(t, disk).open()
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorContains(t, err, "does not say where in the log of the cluster it stands")
		require.NoError(t, disk.Remove(descriptor.NodePath("data")))
		goesOnAlone(t, disk, want)
	})
}

func copyFile(t *testing.T, from, to vfs.FS, name string) {
	f, err := from.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	data, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	require.NoError(t, errors.Join(err, f.Close()))
	require.NoError(t, vfs.WriteAtomic(to, name, data))
}
