package kvd

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// twoNodes is a cluster of nodes 1 and 2.
type twoNodes struct{}

func (twoNodes) Status(context.Context) (service.ClusterStatus, error) {
	return service.ClusterStatus{Cluster: 7, Incarnation: kv.Incarnation{Recoveries: 2, ID: 9}, Node: 1, Leader: 1, Term: 3, Committed: 90, Nodes: []service.ClusterNode{
		{ID: 1, Client: "a:1", Peer: "a:2", Voter: true, Answers: true, Version: "v1", Applied: 90, Started: true},
		{ID: 2, Peer: "b:2", Applied: 80, Lag: 10, Silent: -1, Streams: "refused", NeedsCheckpoint: true, Replaces: 3},
		{ID: 3, Voter: true, Silent: 90 * time.Second},
	}}, nil
}

func (twoNodes) Transfer(_ context.Context, to uint64) (uint64, error) {
	if to > 2 {
		return 0, fmt.Errorf("%w: node %d is no voter", kv.ErrInvalidArgument, to)
	}
	return max(to, 1), nil
}

func (twoNodes) Add(_ context.Context, peer string, replaces uint64) (service.NewNode, error) {
	return service.NewNode{Cluster: 7, Incarnation: kv.Incarnation{Recoveries: 2, ID: 9}, ID: 3, Partitions: 4, Members: map[uint64]string{1: "a:2", 3: peer}, First: []uint64{1, replaces}}, nil
}

func (twoNodes) Remove(_ context.Context, node uint64) error {
	return fmt.Errorf("node %d: %w", node, map[uint64]error{1: kv.ErrNotLeader, 2: kv.ErrUncertain}[node])
}

func (twoNodes) Move(_ context.Context, node uint64, peer string) error {
	if peer != "b:3" {
		return fmt.Errorf("%w: node %d at %s", kv.ErrInvalidArgument, node, peer)
	}
	return nil
}

func TestAClusterIsSeenAndChanged(t *testing.T) {
	var hooked infoLog
	db := serve(t, nil, service.Options{Cluster: twoNodes{}}).open(t, WithHook(hooked.hook))
	cluster, err := db.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, Cluster{ID: 7, Incarnation: "2-0000000000000009", Node: 1, Leader: 1, Term: 3, Committed: 90, Nodes: []ClusterNode{
		{ID: 1, Client: "a:1", Peer: "a:2", Voter: true, Answers: true, Version: "v1", Applied: 90, Started: true},
		{ID: 2, Peer: "b:2", Applied: 80, Lag: 10, Silent: -time.Millisecond, Streams: "refused", NeedsCheckpoint: true, Replaces: 3},
		{ID: 3, Voter: true, Silent: 90 * time.Second},
	}}, cluster)
	leader, err := db.TransferLeadership(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, uint64(2), leader)
	_, err = db.TransferLeadership(t.Context(), 9)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "node 9 is no voter")
	added, err := db.AddNode(t.Context(), "c:2", 5)
	require.NoError(t, err)
	require.Equal(t, AddedNode{Cluster: 7, Incarnation: "2-0000000000000009", ID: 3, Partitions: 4, Members: map[uint64]string{1: "a:2", 3: "c:2"}, First: []uint64{1, 5}}, added)
	err = db.RemoveNode(t.Context(), 1)
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorContains(t, err, "node 1: not the leader")
	require.ErrorContains(t, db.RemoveNode(t.Context(), 2), "node 2: ")
	require.NoError(t, db.MoveNode(t.Context(), 2, "b:3"))
	err = db.MoveNode(t.Context(), 2, "a:2")
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "node 2 at a:2")
	var ops []string
	for _, c := range hooked.take() {
		ops = append(ops, c.Op)
	}
	require.Equal(t, []string{"cluster", "transfer leadership", "transfer leadership", "add node", "remove node", "remove node", "move node", "move node"}, ops)
	require.NoError(t, db.Close())
	_, err = db.Cluster(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.TransferLeadership(t.Context(), 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.AddNode(t.Context(), "c:2", 0)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.RemoveNode(t.Context(), 1), ErrClosed)
	require.ErrorIs(t, db.MoveNode(t.Context(), 1, "b:3"), ErrClosed)
}

// losing is a cluster that makes every change, and whose answers are lost.
type losing struct {
	twoNodes
	made atomic.Int64
	lose func()
}

func (l *losing) lost() error {
	l.made.Add(1)
	l.lose()
	return nil
}

func (l *losing) Transfer(context.Context, uint64) (uint64, error) { return 1, l.lost() }

func (l *losing) Add(context.Context, string, uint64) (service.NewNode, error) {
	return service.NewNode{Cluster: 7, ID: 3}, l.lost()
}

func (l *losing) Remove(context.Context, uint64) error { return l.lost() }

func (l *losing) Move(context.Context, uint64, string) error { return l.lost() }

// A change of a cluster whose answer is lost is tried again, and is not reported as one that was not
// made.
func TestAChangeOfAClusterThatIsNotAnswered(t *testing.T) {
	nodes, way := &losing{}, &cuttable{}
	nodes.lose = way.cut
	way.dial = serve(t, nil, service.Options{Cluster: nodes}).dialer
	db, err := Open("memory", WithDialer(way.dialer), WithTimeout(testwait.Left()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for name, change := range map[string]func() error{
		"transfer": func() error { _, err := db.TransferLeadership(t.Context(), 2); return err },
		"add":      func() error { _, err := db.AddNode(t.Context(), "c:2", 0); return err },
		"remove":   func() error { return db.RemoveNode(t.Context(), 2) },
		"move":     func() error { return db.MoveNode(t.Context(), 2, "c:2") },
	} {
		before := nodes.made.Load()
		require.ErrorIs(t, change(), ErrUncertain, name)
		require.Greater(t, nodes.made.Load(), before+1, name)
	}
}

// A server that is in no cluster, and one from before there were such calls.
func TestAServerInNoCluster(t *testing.T) {
	_, err := serve(t, nil, service.Options{}).open(t).Cluster(t.Context())
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "no member of a cluster")
	_, err = openOn(t, &servertest.Scripted{}).Cluster(t.Context())
	require.ErrorIs(t, err, ErrInvalid)
}
