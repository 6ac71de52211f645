package admin

import (
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Member is what a node of a cluster tells of its part in it. Nodes have their ids.
type Member struct {
	Role   string // one of Roles
	Leader uint64 // 0: it knows none
	Term   uint64
	// Last, Committed and Applied are indexes in the replicated log: of its newest entry here, and
	// up to which this node knows it to be committed and has applied it.
	Last, Committed, Applied uint64
	// Lags are the entries that each other node has not acknowledged. Only the leader knows.
	Lags map[uint64]uint64
	// NeedCheckpoints says of each other node whether it lacks entries that the log has given up, so
	// that it gets a copy of the store. Only the leader knows.
	NeedCheckpoints map[uint64]bool

	Rounds    histogram.PowerCounts // by the reads that shared one
	Proposals map[string]uint64     // by outcome

	Elections, LeaderChanges, Tenures uint64

	HandOvers map[string]uint64 // of the leadership, by reason

	Comparisons     map[string]uint64 // of the states of the nodes, by result
	Compared        time.Time         // the last one; zero: there was none
	ComparedVersion uint64

	Refused uint64 // calls of other nodes
	Peers   []Peer
}

// Roles lists what a node can be in its cluster.
var Roles = []string{"leader", "candidate", "learner", "follower"}

// Peer is what goes to another node and comes from it.
type Peer struct {
	Node                                uint64
	Connected                           bool
	Sent, SentBytes, Received, NotTaken uint64
	SentFileBytes                       uint64
	Lanes                               []Lane
}

// Lane is one of the streams to another node.
type Lane struct {
	Name        string
	QueuedBytes int64
	Dropped     uint64
}

// Metrics of a node of a cluster; a single node has none of them. The files of its log have those
// of the commit log.
var (
	memberRole      = describe("kvd_cluster_role", "1 for what this node is in its cluster, 0 for what it is not; a candidate asks for votes.", "role")
	memberLeader    = describe("kvd_cluster_leader", "1 for the node that leads, as far as this node knows; absent if it knows none.", "node")
	memberTerm      = describe("kvd_cluster_term", "Term of the consensus.")
	memberLast      = describe("kvd_cluster_last_index", "Index of the newest entry in the log of this node.")
	memberCommitted = describe("kvd_cluster_committed_index", "Index up to which this node knows the log to be committed.")
	memberApplied   = describe("kvd_cluster_applied_index", "Index up to which this node has applied the log.")
	memberLag       = describe("kvd_cluster_follower_lag_entries", "Entries of the log that another node has not acknowledged; on the leader alone.", "node")
	memberBehind    = describe("kvd_cluster_follower_needs_checkpoint", "1 while another node lacks entries that the log has given up, and gets a copy of the store; on the leader alone.", "node")
	memberRounds    = describe("kvd_cluster_round_reads", "Rounds that confirmed reads with the leader, by the reads that shared them.")
	memberProposals = describe("kvd_cluster_proposals_total", "Records that this node proposed as the leader, by outcome; of uncertain ones a later leader decides.", "outcome")
	memberElections = describe("kvd_cluster_elections_total", "Times that this node began to ask for votes.")
	memberLeaders   = describe("kvd_cluster_leader_changes_total", "Times that this node learned of a new leader.")
	memberTenures   = describe("kvd_cluster_tenures_total", "Times that this node, as the leader, began to take writes.")
	memberGaveUp    = describe("kvd_cluster_handovers_total", "Times that this node handed the leadership over because its disk was slow or nearly full.", "reason")
	memberCompared  = describe("kvd_cluster_comparisons_total", "Comparisons of the states of the nodes: all that had told theirs were the same, or one did differ.", "result")
	memberLastDone  = describe("kvd_cluster_comparison_timestamp_seconds", "When the states of the nodes were compared last; 0: not since the start.")
	memberLastAt    = describe("kvd_cluster_comparison_version", "The version at which the states of the nodes were compared last.")
	memberRefused   = describe("kvd_cluster_calls_refused_total", "Calls to the address for other nodes that were refused.")

	peerConnected = describe("kvd_cluster_peer_connected", "1 while both streams to another node work.", "node")
	peerQueued    = describe("kvd_cluster_peer_queue_bytes", "Bytes of messages that wait to be sent to another node.", "node", "lane")
	peerDropped   = describe("kvd_cluster_peer_dropped_total", "Messages to another node that were dropped, because too many waited or it was not connected; what counts is sent again.", "node", "lane")
	peerSent      = describe("kvd_cluster_peer_sent_total", "Messages sent to another node.", "node")
	peerSentBytes = describe("kvd_cluster_peer_sent_bytes_total", "Bytes of those messages, about.", "node")
	peerFileBytes = describe("kvd_cluster_peer_sent_file_bytes_total", "Bytes of files sent to another node that lacks entries which the log has given up.", "node")
	peerReceived  = describe("kvd_cluster_peer_received_total", "Messages received from another node.", "node")
	peerNotTaken  = describe("kvd_cluster_peer_not_taken_total", "Messages from another node that were dropped because this node was busy.", "node")
)

func (s sink) member(m *Member) {
	for _, role := range Roles {
		s.flag(memberRole, role == m.Role, role)
	}
	if m.Leader != 0 {
		s.number(memberLeader, 1, nodeLabel(m.Leader))
	}
	s.number(memberTerm, float64(m.Term))
	s.number(memberLast, float64(m.Last))
	s.number(memberCommitted, float64(m.Committed))
	s.number(memberApplied, float64(m.Applied))
	for node, lag := range m.Lags {
		s.number(memberLag, float64(lag), nodeLabel(node))
	}
	for node, needs := range m.NeedCheckpoints {
		s.flag(memberBehind, needs, nodeLabel(node))
	}
	s.powers(memberRounds, &m.Rounds, 1, 0, 16)
	for outcome, n := range m.Proposals {
		s.counter(memberProposals, n, outcome)
	}
	s.counter(memberElections, m.Elections)
	s.counter(memberLeaders, m.LeaderChanges)
	s.counter(memberTenures, m.Tenures)
	for reason, n := range m.HandOvers {
		s.counter(memberGaveUp, n, reason)
	}
	for result, n := range m.Comparisons {
		s.counter(memberCompared, n, result)
	}
	s.time(memberLastDone, m.Compared)
	s.number(memberLastAt, float64(m.ComparedVersion))
	s.counter(memberRefused, m.Refused)
	for i := range m.Peers {
		s.peer(&m.Peers[i])
	}
}

func (s sink) peer(p *Peer) {
	node := nodeLabel(p.Node)
	s.flag(peerConnected, p.Connected, node)
	for _, l := range p.Lanes {
		s.number(peerQueued, float64(l.QueuedBytes), node, l.Name)
		s.counter(peerDropped, l.Dropped, node, l.Name)
	}
	s.counter(peerSent, p.Sent, node)
	s.counter(peerSentBytes, p.SentBytes, node)
	s.counter(peerFileBytes, p.SentFileBytes, node)
	s.counter(peerReceived, p.Received, node)
	s.counter(peerNotTaken, p.NotTaken, node)
}

func nodeLabel(id uint64) string { return strconv.FormatUint(id, 10) }
