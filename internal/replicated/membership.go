package replicated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
)

// MaxNodes bounds the nodes of a cluster. Guessed: each keeps connections to all others.
const MaxNodes = 16

// errNothing ends a change that is made already.
var errNothing = errors.New("nothing is to be done")

// Configuration returns who belongs to the cluster, as far as this node has applied the log; nil
// before Start.
func (l *Log) Configuration() *Configuration { return l.conf.Load() }

// Incarnation returns that of the cluster, as this node was told and as it has applied the log.
func (l *Log) Incarnation() kv.Incarnation {
	known := l.config.Incarnation
	if c := l.conf.Load(); c != nil {
		known = known.Later(c.Incarnation)
	}
	return known
}

// Removed reports whether this node was taken out of the cluster, as it has read in the log.
func (l *Log) Removed() bool {
	c := l.conf.Load()
	return c != nil && c.removed(l.config.Node)
}

// Judge returns why another node, with the random id of its data directory, must not take part;
// nil: it may, as far as this node knows.
func (l *Log) Judge(node, store uint64) error {
	c := l.conf.Load()
	switch {
	case c == nil:
		return nil
	case c.removed(node):
		return fmt.Errorf("node %d was removed from the cluster, and ids are not used again: its machine can only join as a new node, with an empty directory (kvd cluster join)", node)
	}
	n, member := c.Nodes[node]
	if member {
		l.met.note(node, store)
	}
	if member && n.Store == 0 {
		n.Store = l.met.first(node, store)
	}
	return n.checkStore(node, store)
}

// met has the data directories with which nodes have called this one before the log knew theirs. Until
// then a node may have acknowledged entries to this one, and with another directory it lacks them.
type met struct {
	mu     sync.Mutex
	stores map[uint64]uint64 // by node; of members alone, so it is small
	last   map[uint64]uint64 // the directory of the last call, also of members that the log knows
}

// note notes the directory with which a member calls.
func (m *met) note(node, store uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[uint64]uint64{}
	}
	m.last[node] = store
}

// newest returns the directory with which a member has called last; 0: it has told none.
func (m *met) newest(node uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[node]
}

// first returns the directory with which a node has called first, which is store if this is the first
// call; 0: it has told none yet.
func (m *met) first(node, store uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first := m.stores[node]; first != 0 || store == 0 {
		return first
	}
	if m.stores == nil {
		m.stores = map[uint64]uint64{}
	}
	m.stores[node] = store
	return store
}

// checkStore returns an error if the node has another data directory than it had.
func (n Node) checkStore(id, store uint64) error {
	if n.Store == 0 || store == 0 || n.Store == store {
		return nil
	}
	return fmt.Errorf("node %d has another data directory than the one with which it has taken part: a node that has lost its data, or is a copy, must not take part under its old id; "+
		"use that directory again, or replace the node: kvd cluster join --replace %d, with an empty directory", id, id)
}

// Add adds a node at an address for the other nodes, as a learner, and returns its id, which no
// node had before. The leader promotes it when it has caught up; the node that it replaces, if
// that is not 0, is removed at the same time. A node that was added at the same address, or as
// the same replacement, and never started makes room for it: so a call may be repeated.
//
// Errors: kv.ErrInvalidArgument for an address that is in use, and for a node to replace that is
// not there; those of replica.Loop.Reconfigure, as when this node does not lead.
func (l *Log) Add(ctx context.Context, peer string, replaces uint64) (id uint64, err error) {
	err = l.reconfigure(ctx, func(c *Configuration) (string, []replica.Change, error) {
		id = c.Next
		stale, err := c.replaceable(peer, replaces)
		if err != nil {
			return "", nil, err
		}
		changes := []replica.Change{{Kind: replica.AddLearner, Node: id}}
		for _, other := range stale {
			changes = append(changes, replica.Change{Kind: replica.Remove, Node: other})
		}
		info, err := encodeInfo(id, Node{Peer: peer, Replaces: replaces})
		return info, changes, err
	})
	return id, err
}

// replaceable checks a node that is to be added. It returns the nodes whose place it takes: they
// were added in the same way and never started.
func (c *Configuration) replaceable(peer string, replaces uint64) (stale []uint64, err error) {
	refuse := func(format string, args ...any) ([]uint64, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{kv.ErrInvalidArgument}, args...)...)
	}
	if err := c.check(replaces); replaces != 0 && err != nil {
		return nil, err
	}
	if c.removed(replaces) && replaces != 0 {
		return refuse("node %d was removed already: join without --replace", replaces)
	}
	for _, id := range slices.Sorted(maps.Keys(c.Nodes)) {
		n := c.Nodes[id]
		started := n.Store != 0 || slices.Contains(c.Conf.GetVoters(), id)
		sameAddress, sameTask := n.Peer == peer && id != replaces, replaces != 0 && n.Replaces == replaces
		switch {
		case (sameAddress || sameTask) && !started:
			stale = append(stale, id)
		case sameAddress:
			return refuse("node %d has the address %s: give the new node another one, or replace that node: --replace %d", id, peer, id)
		case sameTask:
			return refuse("node %d is about to replace node %d: remove it first, if it is not to", id, replaces)
		}
	}
	if len(c.Nodes)-len(stale) >= MaxNodes {
		return refuse("the cluster has %d nodes, which is as many as it may have: remove one first", len(c.Nodes))
	}
	return stale, nil
}

// check returns an error if there was never a node of that id.
func (c *Configuration) check(id uint64) error {
	if id != 0 && id < c.Next {
		return nil
	}
	var names []string
	for _, known := range slices.Sorted(maps.Keys(c.Nodes)) {
		names = append(names, fmt.Sprint(known))
	}
	return fmt.Errorf("%w: there is no node %d; the cluster has the nodes %s", kv.ErrInvalidArgument, id, strings.Join(names, ", "))
}

// Remove takes a node out of the cluster; nothing is done if it was taken out already. If this
// node leads and is to go itself, it hands the leadership over, and returns a
// replica.NotLeadingError that says to which node.
//
// Errors: kv.ErrInvalidArgument for an id that no node had; those of replica.Loop.Reconfigure.
func (l *Log) Remove(ctx context.Context, id uint64) error {
	return l.reconfigure(ctx, func(c *Configuration) (string, []replica.Change, error) {
		if err := c.check(id); err != nil {
			return "", nil, err
		}
		if c.removed(id) {
			return "", nil, errNothing
		}
		return "", []replica.Change{{Kind: replica.Remove, Node: id}}, nil
	})
}

// Describe replaces what is known of a member: those of its addresses that are not empty, and its
// data directory if that was not known.
//
// Errors: kv.ErrInvalidArgument for a node that is no member, or has another data directory;
// those of replica.Loop.Reconfigure.
func (l *Log) Describe(ctx context.Context, id uint64, n Node) error {
	return l.reconfigure(ctx, func(c *Configuration) (string, []replica.Change, error) {
		now, member := c.Nodes[id]
		if !member {
			return "", nil, fmt.Errorf("%w: node %d is no member of the cluster", kv.ErrInvalidArgument, id)
		}
		if err := now.checkStore(id, n.Store); err != nil {
			return "", nil, fmt.Errorf("%w: %w", kv.ErrInvalidArgument, err)
		}
		next := now.with(n)
		if next == now {
			return "", nil, errNothing
		}
		info, err := encodeInfo(id, next)
		return info, []replica.Change{{Kind: replica.Describe, Node: id}}, err
	})
}

// errLeads ends a change that another leader is to make.
var errLeads = errors.New("this node leads, and is to be moved")

// Move changes the address of a member for the other nodes, which connect to it there as soon as they
// have applied that; nothing is done if it has the address. The node itself may be stopped. If this
// node leads and is to move itself, it hands the leadership over, and returns a
// replica.NotLeadingError that says to which node: its followers could not answer it any more.
//
// Errors: kv.ErrInvalidArgument for a node that is no member, and for an address that another one
// has; replica.ErrBusy while the other voters that answer are no majority, as a node that is not at
// its new address yet, or never will be, would then stop the cluster; those of
// replica.Loop.Reconfigure.
func (l *Log) Move(ctx context.Context, id uint64, peer string) error {
	members, err := l.seenWithout(ctx, id)
	if err != nil {
		return err
	}
	err = l.reconfigure(ctx, func(c *Configuration) (string, []replica.Change, error) {
		voters := c.Conf.GetVoters()
		switch err := c.checkMove(id, peer); {
		case err != nil:
			return "", nil, err
		case len(voters) == 1 && id == l.config.Node: // which reaches itself
		case id == l.config.Node:
			return "", nil, errLeads
		case c.Voter(id):
			if up := answering(members, voters, id); 2*len(up) <= len(voters) {
				return "", nil, fmt.Errorf("%w: of the voters %v only %v answer besides node %d, which are no majority: the cluster would stop if that node were not at %s; "+
					"start the others, or add a node, first", replica.ErrBusy, voters, up, id, peer)
			}
		}
		next := c.Nodes[id]
		next.Peer = peer
		info, err := encodeInfo(id, next)
		return info, []replica.Change{{Kind: replica.Describe, Node: id}}, err
	})
	if !errors.Is(err, errLeads) {
		return err
	}
	leader, err := l.HandOver(ctx)
	if err != nil {
		return err
	}
	return &replica.NotLeadingError{Node: l.config.Node, Leader: leader}
}

// checkMove returns an error unless a node can get an address, and errNothing if it has it.
func (c *Configuration) checkMove(id uint64, peer string) error {
	now, member := c.Nodes[id]
	if err := c.check(id); err != nil {
		return err
	}
	switch {
	case !member:
		return fmt.Errorf("%w: node %d was removed from the cluster", kv.ErrInvalidArgument, id)
	case now.Peer == peer:
		return errNothing
	}
	for _, other := range slices.Sorted(maps.Keys(c.Nodes)) {
		if c.Nodes[other].Peer == peer {
			return fmt.Errorf("%w: node %d has the address %s: give node %d another one", kv.ErrInvalidArgument, other, peer, id)
		}
	}
	return nil
}

// silentToMove is how long a voter may have been silent to count when another one is moved. A voter
// answers each heartbeat, one in a tick, so it is less than the election timeout for which it would
// be Recent: of two nodes that are stopped and moved one after the other, the second one waits.
const silentToMove = 3 * replica.TickInterval

// seenWithout is Seen once a majority of the voters answers besides a node, or has had the time to: a
// node that has just begun to lead has heard of none.
func (l *Log) seenWithout(ctx context.Context, id uint64) (members []replica.Member, err error) {
	for waited := time.Duration(0); ; waited += replica.TickInterval {
		if members, err = l.Seen(ctx); err != nil {
			return nil, err
		}
		voters := l.Configuration().Conf.GetVoters()
		if 2*len(answering(members, voters, id)) > len(voters) || waited > silentToMove || !l.Status().Leading {
			return members, nil
		}
		select {
		case <-time.After(replica.TickInterval):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// answering returns which of the voters answer to the leader, itself among them, but for one.
func answering(members []replica.Member, voters []uint64, but uint64) (up []uint64) {
	for _, m := range members {
		if m.Silent >= 0 && m.Silent <= silentToMove && m.ID != but && slices.Contains(voters, m.ID) {
			up = append(up, m.ID)
		}
	}
	return up
}

// with returns a node with what another one says.
func (n Node) with(other Node) Node {
	if other.Peer != "" {
		n.Peer = other.Peer
	}
	if other.Client != "" {
		n.Client = other.Client
	}
	if other.Store != 0 {
		n.Store = other.Store
	}
	return n
}

// Known reports whether the log has all that a node says of itself.
func (c *Configuration) Known(id uint64, says Node) bool {
	now, member := c.Nodes[id]
	return !member || now == now.with(says)
}

// reconfigure makes a change of the configuration that holds when the loop makes it.
func (l *Log) reconfigure(ctx context.Context, choose func(*Configuration) (string, []replica.Change, error)) error {
	err := l.running().ReconfigureBy(ctx, func() (string, []replica.Change, error) { return choose(l.conf.Load()) })
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// TransferTo lets another node lead, if this one does: see replica.Loop.TransferTo.
func (l *Log) TransferTo(ctx context.Context, to uint64) (leader uint64, err error) {
	return l.running().TransferTo(ctx, to)
}

// Seen describes the nodes of the group as this one sees them: see replica.Loop.Members.
func (l *Log) Seen(ctx context.Context) ([]replica.Member, error) { return l.running().Members(ctx) }

const (
	// PromoteEvery is how often Promote is meant to be called.
	PromoteEvery = 200 * time.Millisecond
	// promoteLag is how many entries a learner may lack, at each of promoteCalls calls of
	// Promote one after the other, to become a voter. Guessed: what a loaded leader writes
	// in the time of a heartbeat.
	promoteLag   = 256
	promoteCalls = 5
)

// Promote makes a learner that has caught up a voter, if this node leads; the node that it
// replaces is removed with the same change. A learner becomes none before the log knows its data
// directory: from then on it cannot come with another one, which would lack what it has
// acknowledged. Promote returns the learner, 0 if there is none. It is called by one goroutine,
// every PromoteEvery.
//
// Errors: kv.ErrInvalidArgument if the learner has called this node with another directory than the
// log knows; those of replica.Loop.Reconfigure. The next call tries again.
func (l *Log) Promote(ctx context.Context) (promoted uint64, err error) {
	status := l.Status()
	if !status.Leading || len(status.Applied.Conf.GetLearners()) == 0 {
		l.caughtUp = nil
		return 0, nil
	}
	members, err := l.Seen(ctx)
	if err != nil {
		return 0, err
	}
	due := uint64(0)
	caughtUp := map[uint64]int{}
	for _, m := range members {
		known := l.Configuration().Nodes[m.ID].Store != 0
		if m.Learner && m.Recent && known && m.Match > 0 && m.Match+promoteLag >= status.Applied.Index {
			caughtUp[m.ID] = l.caughtUp[m.ID] + 1
			if due == 0 && caughtUp[m.ID] >= promoteCalls {
				due = m.ID
			}
		}
	}
	if l.caughtUp = caughtUp; due == 0 {
		return 0, nil
	}
	err = l.reconfigure(ctx, func(c *Configuration) (string, []replica.Change, error) {
		learner := c.Nodes[due]
		// It has acknowledged entries with the first, and may have come back with another one since.
		for _, store := range []uint64{l.met.first(due, 0), l.met.newest(due)} {
			if err := learner.checkStore(due, store); err != nil {
				return "", nil, fmt.Errorf("%w: %w", kv.ErrInvalidArgument, err)
			}
		}
		changes := []replica.Change{{Kind: replica.Promote, Node: due}}
		old := learner.Replaces
		if _, there := c.Nodes[old]; there {
			changes = append(changes, replica.Change{Kind: replica.Remove, Node: old})
		}
		return "", changes, nil
	})
	if err != nil {
		return 0, err
	}
	return due, nil
}
