package replica

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
)

// fromPeers reports whether a peer may send messages of a kind. All others would let a peer
// act as this node: propose without numbering, campaign, or acknowledge for it.
func fromPeers(kind pb.MessageType) bool {
	switch kind {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgReadIndex, pb.MsgReadIndexResp, pb.MsgTimeoutNow, pb.MsgSnap:
		return true
	}
	return false
}

// heartbeatContextBytes is the length of the context of a heartbeat that confirms reads.
const heartbeatContextBytes = 8

// checkMessage checks what the library takes for granted of a message from the network.
func checkMessage(m *pb.Message, id uint64) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s message from node %d: %s", kv.ErrInvalidArgument, m.GetType(), m.GetFrom(), fmt.Sprintf(format, args...))
	}
	switch {
	case !fromPeers(m.GetType()):
		return bad("a peer must not send it")
	case m.GetTo() != id:
		return bad("it is for node %d, this is %d", m.GetTo(), id)
	case m.GetFrom() == 0 || m.GetFrom() == id:
		return bad("no peer has this id")
	case m.GetTerm() == 0 && m.GetType() != pb.MsgReadIndex:
		return bad("it has no term")
	case m.GetType() == pb.MsgReadIndex && (m.GetTerm() != 0 || len(m.GetEntries()) != 1):
		return bad("%d contexts at term %d, want one, and no term", len(m.GetEntries()), m.GetTerm())
	case len(m.GetContext()) != 0 && len(m.GetContext()) != heartbeatContextBytes &&
		(m.GetType() == pb.MsgHeartbeat || m.GetType() == pb.MsgHeartbeatResp):
		return bad("a context of %d bytes, want none or %d", len(m.GetContext()), heartbeatContextBytes)
	}
	if m.GetType() == pb.MsgSnap {
		if at, token := positionOf(m.GetSnapshot()), m.GetSnapshot().GetData(); at.Index == 0 || at.Term == 0 || at.Term > m.GetTerm() ||
			len(at.Conf.GetVoters()) == 0 || len(token) == 0 || len(token) > maxTokenBytes {
			return bad("a checkpoint at index %d of term %d with %d voters, named by %d bytes, in a message of term %d",
				at.Index, at.Term, len(at.Conf.GetVoters()), len(token), m.GetTerm())
		}
	}
	if m.GetType() != pb.MsgApp {
		return nil
	}
	index, term := m.GetIndex(), m.GetLogTerm()
	for _, e := range m.GetEntries() {
		if e.GetIndex() != index+1 || e.GetTerm() < term || e.GetTerm() > m.GetTerm() {
			return bad("entry %d of term %d follows %d of term %d, in a message of term %d", e.GetIndex(), e.GetTerm(), index, term, m.GetTerm())
		}
		index, term = e.GetIndex(), e.GetTerm()
	}
	return nil
}

// saysNothing reports whether a message does nothing but tell its sender's term, as a
// node answers to a message of an earlier term. A leader of that very term, which led in the
// earlier one too, would take it for the acknowledgement of an empty log, and could go on only
// from its first entry. A log that is not empty has no index 0 (see Bootstrap).
func saysNothing(m *pb.Message) bool {
	return m.GetType() == pb.MsgAppResp && !m.GetReject() && m.GetIndex() == 0
}
