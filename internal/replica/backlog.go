package replica

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// backlog holds committed entries that are not applied yet, in order: no more than maxApplyBytes,
// the others are left in the log. It lives from one Process to the next.
type backlog struct {
	entries []*pb.Entry

	// One Process applies so much at most, but for a single longer entry.
	entriesAtOnce, bytesAtOnce int
	leftEntries, leftBytes     int // of the Process under way

	silent uint64 // ticks without a message of the leader while entries were left
}

func (b *backlog) len() int { return len(b.entries) }

func (b *backlog) add(entries []*pb.Entry) { b.entries = append(b.entries, entries...) }

// begin begins a Process.
func (b *backlog) begin() { b.leftEntries, b.leftBytes = b.entriesAtOnce, b.bytesAtOnce }

// applySome applies entries until none is left, or one Process has done enough, or the state
// machine has no room; out says so. The library hears of what is applied.
func (c *Core) applySome(out *Output) {
	b, n := &c.backlog, 0
	for ; n < len(b.entries) && c.err == nil && !out.More; n++ {
		e := b.entries[n]
		if b.leftEntries <= 0 || b.leftBytes <= 0 {
			out.More = true
			break
		}
		if e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 {
			if room := c.config.Machine.Room(); room != nil {
				out.More, out.Room = true, room
				break
			}
		}
		c.apply(e, out)
		b.leftEntries--
		b.leftBytes -= len(e.GetData())
	}
	if c.err != nil {
		return
	}
	c.reads.answer(c.applied.Index, out)
	if n == 0 {
		return
	}
	applied := b.entries[:n:n]
	if b.entries = b.entries[n:]; len(b.entries) == 0 {
		b.entries = nil
	}
	c.guard(func() error {
		return c.node.Step(&pb.Message{
			Type: pb.MsgStorageApplyResp.Enum(), To: &c.config.ID, From: new(uint64(raft.LocalApplyThread)), Term: new(uint64(0)), Entries: applied,
		})
	})
}

// waits reports whether this node does not lead and has committed entries to apply. It then asks
// for no votes: it could begin no tenure before, and if the state machine takes no records it never
// could.
func (c *Core) waits() bool {
	leads := false
	c.guard(func() error { leads = c.node.BasicStatus().RaftState == raft.StateLeader; return nil })
	return c.err == nil && !leads && c.backlog.len() > 0
}

// tick takes the place of a tick of the library while the node waits: in that, the node would ask for
// votes. It forgets a leader that is silent for an election timeout, and votes for another one.
func (b *backlog) tick(c *Core) {
	if b.silent++; b.silent >= electionTicks {
		b.silent = 0
		c.guard(func() error { return c.node.ForgetLeader() })
	}
}
