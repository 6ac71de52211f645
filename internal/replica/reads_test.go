package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
)

// rest delivers all messages, and lets no tick pass.
func (w *world) rest() {
	for {
		for _, n := range w.nodes {
			n.processAll()
		}
		if len(w.net) == 0 {
			return
		}
		w.deliver(0)
	}
}

// A leader that steps down forgets the rounds of reads that no majority has confirmed. The nodes ask
// the next leader for them as soon as they know it, not ticks later.
func TestTheNextLeaderIsAskedForARoundAtOnce(t *testing.T) {
	for _, reader := range []string{"the old leader", "the new leader", "another node"} {
		t.Run(reader, func(t *testing.T) {
			w := newWorld(t, 1, 3)
			old := w.leader()
			w.rest()
			next := w.follower(old)
			n := map[string]*simNode{"the old leader": old, "the new leader": next, "another node": w.follower(next)}[reader]
			contexts := map[string]bool{}
			w.onSend = func(from *simNode, m *pb.Message) { // the old leader confirms no round
				w.cut[[2]uint64{old.id, m.GetTo()}] = from == old && m.GetType() == pb.MsgHeartbeat
				if from == n && m.GetType() == pb.MsgReadIndex {
					context := string(m.GetEntries()[0].GetData())
					require.False(t, contexts[context], "a context is used once")
					contexts[context] = true
				}
			}
			n.read()
			w.rest()
			require.Len(t, n.reads, 1)
			require.NoError(t, old.core.Transfer(next.id))
			w.rest()
			require.True(t, next.core.Status().Leading)
			require.Empty(t, n.reads, "without an answer")
		})
	}
}
