package kvd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// forwards is a service.Forwarder that pretends to perform each write, at version 7.
type forwards struct{ count atomic.Int64 }

func (f *forwards) Forward(_ context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	f.count.Add(1)
	meta := &kvdpb.ResponseMeta{Version: 7}
	answer, err := proto.Marshal(map[string]proto.Message{
		kvdpb.KVService_Put_FullMethodName:         &kvdpb.PutResponse{Meta: meta},
		kvdpb.KVService_Delete_FullMethodName:      &kvdpb.DeleteResponse{Meta: meta},
		kvdpb.KVService_DeleteRange_FullMethodName: &kvdpb.DeleteRangeResponse{Meta: meta},
		kvdpb.KVService_Write_FullMethodName:       &kvdpb.WriteResponse{Meta: meta},
		kvdpb.TxnService_Commit_FullMethodName:     &kvdpb.CommitResponse{Meta: meta},
		kvdpb.TxnService_Execute_FullMethodName:    &kvdpb.ExecuteResponse{Meta: meta},
	}[w.Method])
	return &service.ForwardedAnswer{Message: answer}, err
}

// A node that does not lead forwards the writes of a client that knows it alone, in whatever way they
// travel, and those of a client of several nodes once none of them leads.
func TestANodeForwardsForAClientThatKnowsItAlone(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var to forwards
		var refused atomic.Int64
		store := servicetest.New(kv.DefaultLimits)
		refuse := func() error {
			refused.Add(1)
			return &kv.NotLeaderError{Leader: 2}
		}
		store.OnWrite = func(context.Context, []*kv.Write) error { return refuse() }
		store.OnApply = func(context.Context, *kv.WriteBatch) error { return refuse() }
		server := serve(t, store, service.Options{Forward: &to})
		open := func(target string, opts ...Option) *Client {
			db, err := Open(target, append([]Option{WithDialer(server.dialer)}, opts...)...)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			return db
		}
		alone := open("a:1", opts...)
		for name, write := range writesOf(alone) {
			before := to.count.Load()
			require.NoError(t, write(t.Context()), name)
			require.Equal(t, before+1, to.count.Load(), name)
		}
		before := to.count.Load()
		written, err := alone.PutItem(t.Context(), []byte("k"), nil, ReturnPrevious())
		require.NoError(t, err)
		require.Equal(t, uint64(7), written.Version)
		p := alone.Pipeline()
		for range 100 {
			p.Put([]byte("k"), nil)
		}
		require.NoError(t, p.Do(t.Context()))
		require.Equal(t, before+101, to.count.Load())

		several := open("a:1,b:1", opts...)
		for name, write := range writesOf(several) {
			before, asked := to.count.Load(), refused.Load()
			require.NoError(t, write(t.Context()), name)
			require.Equal(t, before+1, to.count.Load(), name)
			require.Equal(t, asked+3, refused.Load(), "%s: both endpoints, then the first one as it forwards", name)
		}
	})
}

// The writes of a pipeline, too, are forwarded once each endpoint has refused them: each of them once.
func TestAPipelineIsForwardedIfNoEndpointLeads(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var to forwards
		store := servicetest.New(kv.DefaultLimits)
		store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.NotLeaderError{Leader: 2} }
		server := serve(t, store, service.Options{Forward: &to})
		db, err := Open("a:1,b:1", append(opts, WithDialer(server.dialer), WithTimeout(testwait.Left()))...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		for round := range int64(3) {
			p := db.Pipeline()
			for i := range 100 {
				p.Put(fmt.Append(nil, i), nil, ReturnPrevious())
			}
			require.NoError(t, p.Do(t.Context()))
			require.Equal(t, 100*(round+1), to.count.Load())
		}
	})
}

// noLeader is a service.Forwarder that knows no leader.
type noLeader struct{ asked atomic.Int64 }

func (f *noLeader) Forward(context.Context, *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	f.asked.Add(1)
	return nil, &kv.NotLeaderError{}
}

// While no node leads, a pipeline waits in frames: in each round one write asks whether it is forwarded.
func TestAPipelineWaitsInFramesWhileNoNodeLeads(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var none noLeader
		store := servicetest.New(kv.DefaultLimits)
		store.OnWrite = func(context.Context, []*kv.Write) error {
			if none.asked.Load() < 3 {
				return &kv.NotLeaderError{}
			}
			return nil // a leader was elected
		}
		server := serve(t, store, service.Options{Forward: &none})
		db, err := Open("a:1,b:1", append(opts, WithDialer(server.dialer), WithTimeout(testwait.Left()))...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		p := db.Pipeline()
		for i := range 100 {
			p.Put(fmt.Append(nil, i), nil)
		}
		require.NoError(t, p.Do(t.Context()))
		require.Equal(t, 100, store.Len())
		require.EqualValues(t, 3, none.asked.Load())
	})
}

// electing is a service.Forwarder of a node whose cluster elects a leader: at first the node believes in
// one that does not answer, then it knows none, and then there is one, as of forwards.
type electing struct {
	forwards
	asked atomic.Int64
}

// inElection is how many writes electing refuses.
const inElection = 5

func (f *electing) Forward(ctx context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	switch n := f.asked.Add(1); {
	case n > inElection:
		return f.forwards.Forward(ctx, w)
	case n > inElection/2:
		return nil, &kv.NotLeaderError{}
	}
	return nil, &kv.NotLeaderError{Leader: 2, Unreachable: true}
}

// serveFollower serves a node that does not lead.
func serveFollower(t *testing.T, f service.Forwarder) *cluster {
	store := servicetest.New(kv.DefaultLimits)
	store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.NotLeaderError{} }
	store.OnApply = func(context.Context, *kv.WriteBatch) error { return &kv.NotLeaderError{} }
	return serve(t, store, service.Options{Forward: f})
}

// forwardedOf is writesOf, with other calls that only a leader performs.
func forwardedOf(db *Client) map[string]func(context.Context) error {
	all := writesOf(db)
	all["replace"] = func(ctx context.Context) error { return replace(ctx, db, []byte("k"), []byte("v")) }
	all["execute without writes"] = func(ctx context.Context) error {
		_, err := db.Execute(ctx, Execution{If: []Guard{{Key: []byte("k"), Condition: IfAbsent()}}})
		return err
	}
	return all
}

// A write of a client that knows one node of a cluster waits for a leader, as that of a client of several
// nodes does: the node is asked to forward it, after each wait again.
func TestAWriteOfAClientOfOneNodeWaitsForALeader(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		for name := range forwardedOf(nil) {
			synctest.Test(t, func(t *testing.T) {
				var leader electing
				db := serveFollower(t, &leader).open(t, opts...)
				require.NoError(t, forwardedOf(db)[name](t.Context()), name)
				require.EqualValues(t, 1, leader.count.Load(), name)
				require.EqualValues(t, inElection+1, leader.asked.Load(), "%s: each attempt is forwarded, once", name)
			})
		}
	})
}

// The wait ends with the attempts, some seconds later, or before the deadline of the call.
func TestAClientOfOneNodeWaitsSomeSecondsForALeader(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		for name := range forwardedOf(nil) {
			for _, limit := range []time.Duration{time.Hour, 2 * time.Second} {
				synctest.Test(t, func(t *testing.T) {
					db := serveFollower(t, new(noLeader)).open(t, opts...)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					begun := time.Now()
					err := forwardedOf(db)[name](ctx)
					require.ErrorIs(t, err, ErrReadOnly, name)
					require.NotErrorIs(t, err, ErrUncertain, name)
					require.Equal(t, "NOT_LEADER", requireError(t, err).Reason)
					if limit == time.Hour {
						require.InDelta(t, 5, time.Since(begun).Seconds(), 2.5, name)
					} else {
						require.InDelta(t, 2, time.Since(begun).Seconds(), 0.25, name)
					}
				})
			}
		}
	})
}

// A pipeline of such a client waits in frames. In each round one write asks whether it is forwarded, and once
// it is, the others are.
func TestAPipelineOfAClientOfOneNodeWaitsForALeader(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		synctest.Test(t, func(t *testing.T) {
			var leader electing
			db := serveFollower(t, &leader).open(t, opts...)
			p := db.Pipeline()
			for i := range 100 {
				p.Put(fmt.Append(nil, i), nil)
			}
			require.NoError(t, p.Do(t.Context()))
			require.EqualValues(t, 100, leader.count.Load())
			require.EqualValues(t, inElection+100, leader.asked.Load())
		})
	})
}

// A node that does not lead forwards an execution without writes, too, for both kinds of clients: only the
// leader evaluates guards.
func TestAnExecutionWithoutWritesIsForwarded(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var to forwards
		store := servicetest.New(kv.DefaultLimits)
		store.OnApply = func(context.Context, *kv.WriteBatch) error { return &kv.NotLeaderError{Leader: 2} }
		server := serve(t, store, service.Options{Forward: &to})
		for _, target := range []string{"a:1", "a:1,b:1"} {
			db, err := Open(target, append(opts, WithDialer(server.dialer), WithTimeout(testwait.Left()))...)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			before := to.count.Load()
			_, err = db.Execute(t.Context(), Execution{If: []Guard{{Key: []byte("k"), Condition: IfAbsent()}}})
			require.NoError(t, err, target)
			require.Equal(t, before+1, to.count.Load(), target)
		}
	})
}

// forgets is a service.Forwarder that pretends to perform each write, and loses the first answer to it.
type forgets struct {
	mu      sync.Mutex
	applied map[kv.RequestID]string // keys, by the request ids of their writes
	again   int                     // writes that came again
}

func (f *forgets) Forward(_ context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	var put kvdpb.PutRequest
	if err := proto.Unmarshal(w.Message, &put); err != nil {
		return nil, err
	}
	id := kv.RequestID{ClientID: put.Options.ClientId, Sequence: put.Options.Sequence}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.applied[id]; !known {
		f.applied[id] = string(put.Item.Key)
		return &service.ForwardedAnswer{Err: &service.Error{Code: service.Unavailable, Reason: kvdpb.ReasonOutcomeUnknown, Message: "the answer was lost"}}, nil
	}
	if f.applied[id] == string(put.Item.Key) && put.Options.Retried {
		f.again++
	}
	answer, err := proto.Marshal(&kvdpb.PutResponse{Meta: &kvdpb.ResponseMeta{Version: 7}})
	return &service.ForwardedAnswer{Message: answer}, err
}

// A write of a pipeline that was forwarded and whose answer was lost comes again with its request id,
// whether it asked for all or followed. One that has none, as it returns what it replaces, is in doubt.
func TestAForwardedPipelineWhoseAnswersAreLostIsAppliedOnce(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		leader := forgets{applied: make(map[kv.RequestID]string)}
		store := servicetest.New(kv.DefaultLimits)
		store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.NotLeaderError{Leader: 2} }
		server := serve(t, store, service.Options{Forward: &leader})
		db, err := Open("a:1,b:1", append(opts, WithDialer(server.dialer), WithTimeout(testwait.Left()))...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		const n = 50
		p := db.Pipeline()
		for i := range n {
			p.Put(fmt.Append(nil, i), nil)
		}
		require.NoError(t, p.Do(t.Context()))
		require.Len(t, leader.applied, n)
		require.Equal(t, n, leader.again)

		p.Put([]byte("k"), nil, ReturnPrevious())
		require.ErrorIs(t, p.Do(t.Context()), ErrUncertain)
		require.Len(t, leader.applied, n+1, "it did not come again")
		require.Equal(t, n, leader.again)
	})
}
