package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/forward"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// membership is what operators ask of a node of a cluster, and what the nodes ask of each other
// for that. It implements service.Cluster.
type membership struct {
	cluster, node uint64
	partitions    int
	version       string
	self          replicated.Node // what this node says of itself
	network       *peer.Network
	log           *replicated.Log
	follows       *follower
	forwards      *forwarding

	// Of tend alone.
	noted       descriptor.Node // what NODE says
	notNoted    string          // why NODE was not written last; empty: it was
	notPromoted string          // why a learner was not promoted last
}

var (
	_ service.Cluster   = (*membership)(nil)
	_ service.Forwarder = (*membership)(nil)
)

const (
	// askWait bounds how long a node waits for an answer about the state of another one.
	askWait = time.Second
	// changeWait bounds how long a change of the cluster is tried, from the moment on that a
	// node is asked for it: an election and a transfer take seconds.
	changeWait = 20 * time.Second
	// changeSpare is left of the deadline of a caller, so that it gets the reason.
	changeSpare = 200 * time.Millisecond
)

// operated returns the cluster for operators; nil: the store belongs to none.
func (c *clusterNode) operated() service.Cluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		return nil
	}
	return c.nodes
}

// incarnation returns what tells that of the cluster; nil: the store belongs to none.
func (c *clusterNode) incarnation() func() kv.Incarnation {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		return nil
	}
	return c.nodes.log.Incarnation
}

// forwarder returns what reaches the leader; nil: the store belongs to no cluster.
func (c *clusterNode) forwarder() service.Forwarder {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		return nil
	}
	return c.nodes
}

// serveForwards lets other nodes forward writes of their clients to this one.
func (c *clusterNode) serveForwards(s *service.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.network != nil {
		r := forward.NewReceiver(s)
		c.network.ServeForwards(func(ctx context.Context, f *peer.Forwarded) error { return r.Perform(ctx, f.From, f.Head, f) })
	}
}

// answer answers a question of another node.
func (m *membership) answer(ctx context.Context, from uint64, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
	if q.GetDescribe() != nil && q.GetDescribe().GetNode() != from {
		return nil, fmt.Errorf("node %d describes node %d", from, q.GetDescribe().GetNode())
	}
	a, err := m.perform(ctx, q)
	if err != nil {
		return refuse(err)
	}
	return a, nil
}

// refuse returns the answer that says why nothing was done.
//
// Errors: err, if the other node cannot decide by it.
func refuse(err error) (*peerpb.AskResponse, error) {
	class, known := reason.Classify(err)
	if !known {
		return nil, err
	}
	a := &peerpb.AskResponse{Reason: class.Reason, Message: err.Error()}
	if elsewhere, ok := errors.AsType[*replica.NotLeadingError](err); ok {
		a.Leader = elsewhere.Leader
	}
	return a, nil
}

// perform does on this node what is asked.
func (m *membership) perform(ctx context.Context, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
	a := &peerpb.AskResponse{}
	switch q := q.GetQuestion().(type) {
	case *peerpb.AskRequest_State:
		state, err := m.state(ctx)
		a.Answer = &peerpb.AskResponse_State{State: state}
		return a, err
	case *peerpb.AskRequest_Transfer:
		leader, err := m.log.TransferTo(ctx, q.Transfer.GetTo())
		a.Answer = &peerpb.AskResponse_Transferred{Transferred: leader}
		return a, err
	case *peerpb.AskRequest_Add:
		added, err := m.add(ctx, q.Add)
		a.Answer = &peerpb.AskResponse_Added{Added: added}
		return a, err
	case *peerpb.AskRequest_Remove:
		return a, m.log.Remove(ctx, q.Remove.GetNode())
	case *peerpb.AskRequest_Move:
		if err := m.network.CheckAddress(q.Move.GetPeer()); err != nil {
			return nil, err
		}
		return a, m.log.Move(ctx, q.Move.GetNode(), q.Move.GetPeer())
	case *peerpb.AskRequest_Describe:
		says := replicated.Node{Client: q.Describe.GetClient(), Store: q.Describe.GetStore()}
		return a, m.log.Describe(ctx, q.Describe.GetNode(), says)
	}
	return nil, fmt.Errorf("%w: it asks what this version of kvd does not know", kv.ErrInvalidArgument)
}

func (m *membership) add(ctx context.Context, q *peerpb.AddRequest) (*peerpb.AddedNode, error) {
	if err := m.network.CheckAddress(q.GetPeer()); err != nil {
		return nil, err
	}
	id, err := m.log.Add(ctx, q.GetPeer(), q.GetReplaces())
	if err != nil {
		return nil, err
	}
	c := m.log.Configuration()
	added := &peerpb.AddedNode{Node: id, FirstVoters: c.First, Partitions: uint32(m.partitions)}
	if i := m.log.Incarnation(); i != (kv.Incarnation{}) {
		added.Incarnation = i.String()
	}
	for _, other := range slices.Sorted(maps.Keys(c.Nodes)) {
		added.Nodes = append(added.Nodes, &peerpb.NodeRecord{Node: other, Peer: c.Nodes[other].Peer})
	}
	return added, nil
}

// state describes this node, and the others as it sees them.
func (m *membership) state(ctx context.Context) (*peerpb.NodeState, error) {
	members, err := m.log.Seen(ctx)
	if err != nil {
		return nil, err
	}
	status := m.log.Status()
	state := &peerpb.NodeState{
		Node: m.node, Version: m.version, Term: status.Term, Leader: status.Leader,
		Committed: status.Committed, Applied: status.Applied.Index,
	}
	streams := map[uint64]peer.Status{}
	for _, s := range m.network.Status() {
		streams[s.Node] = s
	}
	for _, other := range members {
		if other.ID == m.node {
			continue
		}
		seen := &peerpb.SeenNode{
			Node: other.ID, Connected: streams[other.ID].Connected, Why: streams[other.ID].Why,
			Match: other.Match, SilentMs: -1, NeedsCheckpoint: other.NeedsCheckpoint,
		}
		if other.Silent >= 0 {
			seen.SilentMs = other.Silent.Milliseconds()
		}
		state.Others = append(state.Others, seen)
	}
	return state, nil
}

// Status implements service.Cluster. It asks all nodes.
func (m *membership) Status(ctx context.Context) (service.ClusterStatus, error) {
	own, err := m.state(ctx)
	if err != nil {
		return service.ClusterStatus{}, err
	}
	c := m.log.Configuration()
	states := m.askAll(ctx, slices.Sorted(maps.Keys(c.Nodes)))
	states[m.node] = own
	summary := m.summary(own, states, c.Nodes, c.Voter)
	summary.Incarnation = m.log.Incarnation()
	return summary, nil
}

// askAll asks the other nodes for their states. Those that do not answer are missing.
func (m *membership) askAll(ctx context.Context, nodes []uint64) map[uint64]*peerpb.NodeState {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	states := map[uint64]*peerpb.NodeState{}
	for _, id := range nodes {
		if id == m.node {
			continue
		}
		asking.Go(func() {
			a, err := m.network.Ask(ctx, id, &peerpb.AskRequest{Question: &peerpb.AskRequest_State{State: &peerpb.StateRequest{}}})
			if state := a.GetState(); err == nil && state.GetNode() == id {
				mu.Lock()
				states[id] = state
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return states
}

// summary puts together what the nodes say. What the leader sees of the others counts, and
// without one what this node sees.
func (m *membership) summary(own *peerpb.NodeState, states map[uint64]*peerpb.NodeState, nodes map[uint64]replicated.Node, voter func(uint64) bool) service.ClusterStatus {
	s := service.ClusterStatus{Cluster: m.cluster, Node: m.node, Leader: own.GetLeader(), Term: own.GetTerm()}
	sees := own
	if leader := states[s.Leader]; leader != nil {
		sees = leader
	}
	for _, state := range states {
		s.Committed = max(s.Committed, state.GetCommitted())
	}
	seen := map[uint64]*peerpb.SeenNode{}
	for _, other := range sees.GetOthers() {
		seen[other.GetNode()] = other
	}
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		state, other, known := states[id], seen[id], nodes[id]
		n := service.ClusterNode{
			ID: id, Client: known.Client, Peer: known.Peer, Voter: voter(id),
			Answers: state != nil, Version: state.GetVersion(), Applied: state.GetApplied(), Silent: -1,
			NeedsCheckpoint: other.GetNeedsCheckpoint(), Started: known.Store != 0, Replaces: known.Replaces,
		}
		if state == nil {
			n.Applied = other.GetMatch()
		}
		n.Lag = s.Committed - min(n.Applied, s.Committed)
		switch {
		case id == sees.GetNode():
			n.Silent = 0
		case sees.GetNode() == s.Leader && other.GetSilentMs() >= 0:
			n.Silent = time.Duration(other.GetSilentMs()) * time.Millisecond
		}
		if other != nil && !other.GetConnected() {
			n.Streams = "no streams yet"
			if other.GetWhy() != "" {
				n.Streams = other.GetWhy()
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// Transfer implements service.Cluster.
func (m *membership) Transfer(ctx context.Context, to uint64) (uint64, error) {
	if to != 0 && to == m.log.Status().Leader {
		return to, nil
	}
	a, err := m.askLeader(ctx, &peerpb.AskRequest{Question: &peerpb.AskRequest_Transfer{Transfer: &peerpb.TransferRequest{To: to}}})
	return a.GetTransferred(), err
}

// Add implements service.Cluster.
func (m *membership) Add(ctx context.Context, address string, replaces uint64) (service.NewNode, error) {
	a, err := m.askLeader(ctx, &peerpb.AskRequest{Question: &peerpb.AskRequest_Add{Add: &peerpb.AddRequest{Peer: address, Replaces: replaces}}})
	if err != nil {
		return service.NewNode{}, err
	}
	added := a.GetAdded()
	incarnation, err := kv.ParseIncarnation(added.GetIncarnation())
	if err != nil {
		return service.NewNode{}, err
	}
	n := service.NewNode{
		Cluster: m.cluster, Incarnation: incarnation, ID: added.GetNode(), Partitions: int(added.GetPartitions()), First: added.GetFirstVoters(), Members: map[uint64]string{},
	}
	for _, r := range added.GetNodes() {
		n.Members[r.GetNode()] = r.GetPeer()
	}
	return n, nil
}

// Remove implements service.Cluster.
func (m *membership) Remove(ctx context.Context, node uint64) error {
	_, err := m.askLeader(ctx, &peerpb.AskRequest{Question: &peerpb.AskRequest_Remove{Remove: &peerpb.RemoveRequest{Node: node}}})
	return err
}

// Move implements service.Cluster.
func (m *membership) Move(ctx context.Context, node uint64, address string) error {
	_, err := m.askLeader(ctx, &peerpb.AskRequest{Question: &peerpb.AskRequest_Move{Move: &peerpb.MoveRequest{Node: node, Peer: address}}})
	return err
}

// askLeader has the node that leads do something. While none does, or it is busy, it tries
// again: so what is asked may be done twice, and the second time nothing is to be done.
func (m *membership) askLeader(ctx context.Context, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
	end := time.Now().Add(changeWait)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-changeSpare).Before(end) {
		end = deadline.Add(-changeSpare)
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for why := error(nil); ; {
		a, err := m.askOnce(ctx, q)
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil && why != nil {
			return nil, why
		}
		why = err
		again := errors.Is(err, kv.ErrNotLeader) || errors.Is(err, replica.ErrBusy) || errors.Is(err, peer.ErrUnreachable) ||
			errors.Is(err, kv.ErrUncertain) && q.GetTransfer() == nil
		if !again {
			return nil, err
		}
		select {
		case <-time.After(replica.TickInterval):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// askOnce asks the node that leads, as far as this one knows.
func (m *membership) askOnce(ctx context.Context, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
	leader := m.log.Status().Leader
	if leader == 0 || leader == m.node {
		return m.perform(ctx, q)
	}
	a, err := m.network.Ask(ctx, leader, q)
	if errors.Is(err, peer.ErrUnreachable) {
		return nil, unreachable{err}
	}
	if err != nil {
		return nil, err
	}
	return a, refusalOf(a)
}

// unreachable is the error of a leader that does not answer.
type unreachable struct{ error }

func (e unreachable) Unwrap() []error { return []error{e.error, kv.ErrUncertain} }

// refusal is why another node did not do what it was asked.
type refusal struct {
	kind    error
	message string
}

func (e *refusal) Error() string { return e.message }
func (e *refusal) Unwrap() error { return e.kind }

// refusalOf returns the error that another node answers, nil if it has done what it was asked.
func refusalOf(a *peerpb.AskResponse) error {
	if a.GetReason() == "" {
		return nil
	}
	for _, kind := range []error{kv.ErrUncertain, kv.ErrNotLeader, replica.ErrBusy, kv.ErrInvalidArgument} {
		if class, _ := reason.Classify(kind); class.Reason == a.GetReason() {
			return &refusal{kind, a.GetMessage()}
		}
	}
	return errors.New(a.GetMessage())
}

// clientAddress returns the address that a node tells clients: where it listens, at the host of
// its address for the other nodes if it listens at all hosts.
func clientAddress(listen net.Addr, peerAddress string) string {
	tcp, ok := listen.(*net.TCPAddr)
	if !ok {
		return ""
	}
	host, _, err := net.SplitHostPort(peerAddress)
	if err != nil || !tcp.IP.IsUnspecified() {
		return tcp.String()
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}

// ErrExpelled: the node was removed from its cluster, or has not the data that it had.
var ErrExpelled = errors.New("this node must not run")

// expel ends the process of a node that must not take part.
func (s *process) expel(why error) {
	select {
	case s.ended <- fmt.Errorf("%w: %w", ErrExpelled, why):
	default: // it is about to end
	}
}

// tend looks after the membership until ctx ends: it has learners promoted, tells the cluster the
// address of this node, notes those of all nodes, and ends the process if this one was removed.
func (s *process) tend(ctx context.Context, m *membership) {
	ticker := time.NewTicker(replicated.PromoteEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if m.log.Removed() {
			s.expel(fmt.Errorf("node %d was removed from the cluster; its data directory is of no more use", m.node))
			return
		}
		s.promote(ctx, m)
		m.introduce(ctx)
		if s.cluster.answered.Load() { // until then the log may say what was, and NODE what is
			s.note(m)
		}
	}
}

// promote makes learners voters that have caught up.
func (s *process) promote(ctx context.Context, m *membership) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	switch node, err := m.log.Promote(ctx); {
	case err != nil && ctx.Err() == nil && !errors.Is(err, kv.ErrNotLeader) && !errors.Is(err, kv.ErrOverloaded) && !errors.Is(err, kv.ErrClosed):
		if err.Error() != m.notPromoted {
			m.notPromoted = err.Error()
			s.log.Warn("a node that has caught up does not become a voter yet", zap.Error(err))
		}
	case node != 0:
		s.log.Info("a node has caught up, and votes now", zap.Uint64("node", node))
	}
}

// note writes the addresses of the nodes and the incarnation of the cluster to NODE when they have
// changed. With them this node finds the others when it starts, listens at its own address, and knows
// from the first call on with which nodes it has nothing in common.
func (s *process) note(m *membership) {
	next := m.noted
	next.Members, next.Incarnation = m.log.Configuration().Addresses(m.noted.Members), m.log.Incarnation()
	if maps.Equal(next.Members, m.noted.Members) && next.Incarnation == m.noted.Incarnation || next.Members[m.node] == "" {
		return
	}
	if err := descriptor.WriteNode(s.disk.fs, s.config.Data, &next); err != nil {
		if err.Error() != m.notNoted {
			m.notNoted = err.Error()
			s.log.Warn("the addresses of the nodes cannot be written to NODE; if they have changed, start this node with --cluster-listen", zap.Error(err))
		}
		return
	}
	s.log.Info("the file NODE has new addresses of the nodes, or another incarnation of the cluster", zap.Any("nodes", next.Members), zap.Stringer("incarnation", next.Incarnation))
	m.noted, m.notNoted = next, ""
}

// introduce tells the cluster the address and the data directory of this node, unless the log has
// them. If it cannot, it is called again.
func (m *membership) introduce(ctx context.Context) {
	if m.log.Configuration().Known(m.node, m.self) || m.log.Status().Leader == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	says := &peerpb.NodeRecord{Node: m.node, Client: m.self.Client, Store: m.self.Store}
	_, _ = m.askOnce(ctx, &peerpb.AskRequest{Question: &peerpb.AskRequest_Describe{Describe: says}})
}
