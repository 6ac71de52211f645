package replica

import (
	"math"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A node that is left alone, for ever, becomes the only voter. It keeps all that is in its log,
// also what it did not know to be committed.
func TestRecoveryFromALostMajority(t *testing.T) {
	for name, prepare := range map[string]func(w *world, n *simNode){
		"as a voter":   func(*world, *simNode) {},
		"as a learner": func(w *world, n *simNode) { w.settled(w.leader(), Change{Demote, n.id}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 3)
			leader := w.leader()
			n := w.follower(leader)
			prepare(w, n)
			require.Equal(t, Committed, w.write(leader).Result)
			w.settle(func() bool { return n.machine.at.Index == leader.machine.at.Index })
			n.durable = *n.machine
			last := n.machine.at.Index
			for _, other := range w.nodes {
				if other != n {
					other.crash()
				}
			}
			n.core.Stop()
			_, err := n.core.Process()
			require.ErrorIs(t, err, kv.ErrClosed)

			_, err = PlanRecovery(n.log, simGroup, 9, n.durable.at, Position{}, "")
			require.ErrorIs(t, err, kv.ErrInvalidArgument, "no member")
			r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "told")
			require.NoError(t, err)
			require.Equal(t, last, r.Last)
			require.Len(t, r.Others, 2)
			require.False(t, slices.Contains(r.Others, n.id))
			require.NoError(t, r.Recover(n.log, simGroup))
			again, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "")
			require.NoError(t, err)
			require.Empty(t, again.Others)
			require.Empty(t, again.entries, "nothing is left to do")

			n.crash()
			n.start()
			w.settle(func() bool { return n.core.Status().Leading })
			require.Equal(t, []uint64{n.id}, n.machine.at.Conf.GetVoters())
			require.Equal(t, "told", n.machine.info)
			require.Equal(t, Committed, w.write(n).Result)
		})
	}
}

// lone returns a node of a group that is stopped, all others of which are lost, and the index of its
// last entry.
func lone(t *testing.T) (w *world, n *simNode, last uint64) {
	w = newWorld(t, 1, 3)
	leader := w.leader()
	n = w.follower(leader)
	require.Equal(t, Committed, w.write(leader).Result)
	w.settle(func() bool { return n.machine.at.Index == leader.machine.at.Index })
	n.durable = *n.machine
	for _, other := range w.nodes {
		if other != n {
			other.crash()
		}
	}
	n.core.Stop()
	_, err := n.core.Process()
	require.ErrorIs(t, err, kv.ErrClosed)
	return w, n, n.machine.at.Index
}

// appendEntry appends an entry to the log of a node.
func (n *simNode) appendEntry(t *testing.T, e *pb.Entry) {
	require.NoError(t, n.log.Write(true, raftlog.Update{Group: simGroup, Entries: []*pb.Entry{e}}))
}

// The node is left alone in the middle of a change of two nodes: that is completed before the others are
// taken out.
func TestRecoveryInTheMiddleOfAChange(t *testing.T) {
	w, n, last := lone(t)
	term := must(n.log.Group(simGroup).Term(last))
	var changes []*pb.ConfChangeSingle
	for id := uint64(1); id <= 3; id++ {
		if id != n.id {
			changes = append(changes, &pb.ConfChangeSingle{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(id)})
		}
	}
	joins := must(proto.Marshal(&pb.ConfChangeV2{Changes: changes}))
	n.appendEntry(t, entry(last+1, term, pb.EntryConfChangeV2, joins))
	r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "told")
	require.NoError(t, err)
	require.Equal(t, last+1, r.Last)
	require.Len(t, r.entries, 3, "one leaves the joint configuration")
	require.NoError(t, r.Recover(n.log, simGroup))
	n.crash()
	n.start()
	w.settle(func() bool { return n.core.Status().Leading })
	require.Equal(t, []uint64{n.id}, n.machine.at.Conf.GetVoters())
	require.Empty(t, n.machine.at.Conf.GetVotersOutgoing())
	require.Empty(t, n.machine.at.Conf.GetLearners())
}

// A log that is damaged, cannot be read, or does not fit the store is not recovered.
func TestRecoveryOfABadLog(t *testing.T) {
	t.Run("a change that cannot be decoded", func(t *testing.T) {
		_, n, last := lone(t)
		n.appendEntry(t, entry(last+1, must(n.log.Group(simGroup).Term(last)), pb.EntryConfChangeV2, []byte("\xff")))
		_, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "")
		require.ErrorIs(t, err, kv.ErrCorrupt)
	})
	t.Run("another history", func(t *testing.T) {
		_, n, _ := lone(t)
		other := n.durable.at
		other.Term++
		_, err := PlanRecovery(n.log, simGroup, n.id, other, Position{}, "")
		require.ErrorIs(t, err, kv.ErrCorrupt)
	})
	t.Run("the log has lost what a part of the state machine has saved", func(t *testing.T) {
		_, n, last := lone(t)
		newest := Position{Index: last + 1, Term: n.durable.at.Term}
		_, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, newest, "")
		require.ErrorIs(t, err, kv.ErrCorrupt)
	})
	t.Run("a disk that cannot be read", func(t *testing.T) {
		_, n, last := lone(t)
		term := must(n.log.Group(simGroup).Term(last))
		for i := range uint64(20) { // more than the log keeps in memory
			n.appendEntry(t, entry(last+1+i, term, pb.EntryNormal, make([]byte, 100)))
		}
		n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Read)))
		_, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "")
		require.ErrorIs(t, err, syscall.EIO)
	})
	t.Run("a disk that cannot be written", func(t *testing.T) {
		_, n, _ := lone(t)
		r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "")
		require.NoError(t, err)
		n.fs.SetInjector(faultfs.FailAt(0, syscall.ENOSPC, true, faultfs.OnKind(faultfs.Write)))
		require.ErrorIs(t, r.Recover(n.log, simGroup), syscall.ENOSPC)
		_, err = PlanRecovery(n.log, simGroup, n.id, n.durable.at, Position{}, "")
		require.ErrorIs(t, err, kv.ErrFailed, "the log has ended")
	})
}

// What fills the log of a first voter fails with its disk, at any write.
func TestBootstrapWithAStateOnABadDisk(t *testing.T) {
	record := make([]byte, fillBytes/2+1)
	for i := 0; ; i++ {
		n := &simNode{id: 1, disk: vfs.NewMem()}
		fsys := faultfs.Wrap(n.disk, nil)
		log, _, err := raftlog.Open(n.logOptions(fsys, true))
		require.NoError(t, err)
		fsys.SetInjector(faultfs.FailAt(i, syscall.EIO, false, faultfs.OnKind(faultfs.Write, faultfs.Sync)))
		err = BootstrapWithState(log, simGroup, 1, func(add func([]byte) error) error {
			for range 5 {
				if err := add(record); err != nil {
					return err
				}
			}
			return nil
		})
		fsys.SetInjector(nil)
		if err == nil {
			require.Greater(t, i, 3)
			require.NoError(t, log.Close())
			return
		}
		require.ErrorIs(t, err, syscall.EIO, "write or sync %d", i)
		require.ErrorIs(t, log.Err(), kv.ErrFailed)
		_ = log.Close() // it has failed
	}
}

// The power fails at any byte that a recovery writes. The node then counts as committed what it did
// before, unless all changes that make it the only one are in its log; and it can be recovered again.
func TestARecoveryThatStopsAtAnyByte(t *testing.T) {
	w, n, last := lone(t)
	term := must(n.log.Group(simGroup).Term(last))
	n.appendEntry(t, entry(last+1, term, pb.EntryNormal, nil)) // it does not know that this is committed
	disk := n.disk.CrashImage(vfs.DropAll, nil)
	plan := func(log *raftlog.Log) *Recovery {
		return must(PlanRecovery(log, simGroup, n.id, n.durable.at, Position{}, "told"))
	}
	before := plan(n.log).Committed
	require.LessOrEqual(t, before, last)
	stopped := map[bool]int{} // by whether all changes were in the log
	recoverAt := func(op, short int) (ended bool) {
		n.disk = disk.CrashImage(vfs.KeepAll, nil)
		n.fs = faultfs.Wrap(n.disk, nil)
		log := must2(raftlog.Open(n.logOptions(n.fs, false)))
		r := plan(log)
		n.fs.SetInjector(faultfs.At(op, true, faultfs.Fault{Err: syscall.EIO, Short: short}, faultfs.OnKind(faultfs.Write, faultfs.Sync)))
		err := r.Recover(log, simGroup)
		image := n.disk.CrashImage(vfs.KeepAll, nil)
		_ = log.Close() // it may have failed
		log = must2(raftlog.Open(n.logOptions(image, false)))
		found := plan(log)
		whole := len(found.Others) == 0
		if !whole {
			require.Equal(t, before, found.Committed, "write or sync %d stopped after %d bytes", op, short)
		}
		require.NoError(t, found.Recover(log, simGroup))
		again := plan(log)
		require.Empty(t, again.Others)
		require.False(t, again.Unfinished)
		require.Equal(t, again.Last, again.Committed)
		require.NoError(t, log.Close())
		if err != nil {
			stopped[whole]++
		}
		return err == nil
	}
	for op := 0; !recoverAt(op, 0); op++ {
		for short := 1; short < 400; short += 3 {
			recoverAt(op, short)
		}
	}
	require.NotZero(t, stopped[true])
	require.NotZero(t, stopped[false])

	// All changes are in the log, and are not committed yet: the plan says so.
	require.True(t, recoverAt(math.MaxInt, 0))
	n.disk = disk.CrashImage(vfs.KeepAll, nil)
	n.fs = faultfs.Wrap(n.disk, nil)
	n.log = must2(raftlog.Open(n.logOptions(n.fs, false)))
	r := plan(n.log)
	n.fs.SetInjector(faultfs.FailAt(2, syscall.EIO, true, faultfs.OnKind(faultfs.Write, faultfs.Sync)))
	require.ErrorIs(t, r.Recover(n.log, simGroup), syscall.EIO)
	_ = n.log.Close() // it has failed
	n.log = must2(raftlog.Open(n.logOptions(n.disk, false)))
	r = plan(n.log)
	require.True(t, r.Unfinished)
	require.Empty(t, r.Others)
	require.Equal(t, before, r.Committed)
	require.NoError(t, r.Recover(n.log, simGroup))
	require.NoError(t, n.log.Close())
	n.start()
	w.settle(func() bool { return n.core.Status().Leading })
	require.Equal(t, []uint64{n.id}, n.machine.at.Conf.GetVoters())
}

func must2[T, U any](v T, _ U, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
