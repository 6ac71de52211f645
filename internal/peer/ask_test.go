package peer

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

func TestAsk(t *testing.T) {
	n1, n2, _, _, p := pair(t, nil)
	q := &peerpb.AskRequest{Question: &peerpb.AskRequest_Remove{Remove: &peerpb.RemoveRequest{Node: 7}}}
	_, err := n1.Ask(t.Context(), 2, q)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "answers no questions yet")
	n2.Answer(func(_ context.Context, from uint64, q *peerpb.AskRequest) (*peerpb.AskResponse, error) {
		if q.GetRemove().GetNode() != 7 {
			return nil, errors.New("it is busy")
		}
		return &peerpb.AskResponse{Leader: from}, nil
	})
	a, err := n1.Ask(t.Context(), 2, q)
	require.NoError(t, err)
	require.Equal(t, uint64(1), a.GetLeader())
	_, err = n1.Ask(t.Context(), 2, &peerpb.AskRequest{})
	require.ErrorContains(t, err, "it is busy")
	_, err = n1.Ask(t.Context(), 9, q)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n1.Ask(ended, 2, q)
	require.ErrorIs(t, err, context.Canceled)
	p.setCut(true)
	disconnected(t, n1)
	_, err = n1.Ask(t.Context(), 2, q)
	require.ErrorIs(t, err, ErrUnreachable)
}

// A node that the other one expels learns it, by its streams and when it asks.
func TestAnExpelledNodeLearnsIt(t *testing.T) {
	var r reports
	n1, n2, _, to2, p := pair(t, func(o *Options) { o.Store, o.Report = 10+o.Node, r.report })
	n2.Judge(func(node, store uint64) error {
		if node == 1 && store == 11 {
			return errors.New("node 1 has another directory now")
		}
		return nil
	})
	p.setCut(true)
	disconnected(t, n1)
	p.setCut(false)
	testwait.Until(t, func() bool { return r.expelled() })
	require.True(t, r.has("node 1 has another directory now"))
	testwait.Until(t, func() bool { // the first ones may meet a connection that was made during the cut
		_, err := n1.Ask(t.Context(), 2, &peerpb.AskRequest{})
		return errors.Is(err, ErrExpelled)
	})
	require.Empty(t, to2.all())
}

// A node sends nothing to another one that answers with another data directory than it had.
func TestAnotherDirectoryGetsNothing(t *testing.T) {
	n1, _, _, to2, p := pair(t, func(o *Options) { o.Store = 10 + o.Node })
	n1.Judge(func(node, store uint64) error {
		if node == 2 && store == 12 {
			return errors.New("node 2 has another directory now")
		}
		return nil
	})
	p.setCut(true)
	disconnected(t, n1)
	p.setCut(false)
	testwait.Until(t, func() bool { return strings.Contains(n1.Status()[0].Why, "node 2 has another directory now") })
	n1.Send([]*pb.Message{{To: new(uint64(2)), From: new(uint64(1)), Type: pb.MsgApp.Enum()}})
	require.False(t, n1.Status()[0].Connected)
	require.Empty(t, to2.all())
}

func (r *reports) expelled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if errors.Is(e.Err, ErrExpelled) {
			return true
		}
	}
	return false
}

func TestAddressesThatCannotBeUsed(t *testing.T) {
	n := start(t, options(1), &inbox{})
	require.NoError(t, n.CheckAddress("127.0.0.1:7"))
	require.ErrorIs(t, n.CheckAddress("10.0.0.1:7"), kv.ErrInvalidArgument)
	require.ErrorIs(t, n.CheckAddress("nonsense"), kv.ErrInvalidArgument)
	require.ErrorIs(t, n.CheckAddress("127.0.0.1:http"), kv.ErrInvalidArgument)
	require.ErrorIs(t, n.CheckSecured("10.0.0.1:7"), kv.ErrInvalidArgument)
}

func TestTheTextOfAConnectionThatCannotBeMade(t *testing.T) {
	require.Equal(t, "dial tcp 127.0.0.1:1: connect: connection refused",
		shorten(`connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`))
	require.Equal(t, "other", shorten("other"))
}
