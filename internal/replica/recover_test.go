package replica

import (
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

			_, err = PlanRecovery(n.log, simGroup, 9, n.durable.at, "")
			require.ErrorIs(t, err, kv.ErrInvalidArgument, "no member")
			r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "told")
			require.NoError(t, err)
			require.Equal(t, last, r.Last)
			require.Len(t, r.Others, 2)
			require.False(t, slices.Contains(r.Others, n.id))
			require.NoError(t, r.Recover(n.log, simGroup))
			again, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
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
	r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "told")
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
		_, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
		require.ErrorIs(t, err, kv.ErrCorrupt)
	})
	t.Run("another history", func(t *testing.T) {
		_, n, _ := lone(t)
		other := n.durable.at
		other.Term++
		_, err := PlanRecovery(n.log, simGroup, n.id, other, "")
		require.ErrorIs(t, err, kv.ErrCorrupt)
	})
	t.Run("a disk that cannot be read", func(t *testing.T) {
		_, n, last := lone(t)
		term := must(n.log.Group(simGroup).Term(last))
		for i := range uint64(20) { // more than the log keeps in memory
			n.appendEntry(t, entry(last+1+i, term, pb.EntryNormal, make([]byte, 100)))
		}
		n.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Read)))
		_, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
		require.ErrorIs(t, err, syscall.EIO)
	})
	t.Run("a disk that cannot be written", func(t *testing.T) {
		_, n, _ := lone(t)
		r, err := PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
		require.NoError(t, err)
		n.fs.SetInjector(faultfs.FailAt(0, syscall.ENOSPC, true, faultfs.OnKind(faultfs.Write)))
		require.ErrorIs(t, r.Recover(n.log, simGroup), syscall.ENOSPC)
		_, err = PlanRecovery(n.log, simGroup, n.id, n.durable.at, "")
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
