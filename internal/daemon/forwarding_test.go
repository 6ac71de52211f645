package daemon

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/service"
)

// elected is a log that says which node leads.
type elected struct {
	mu      sync.Mutex
	now     replica.Leads
	changed chan struct{}
}

func (e *elected) lead(node uint64, open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed != nil {
		close(e.changed)
	}
	e.changed = make(chan struct{})
	e.now = replica.Leads{Node: node, Open: open, Changed: e.changed}
}

func (e *elected) leads() replica.Leads {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// forwardingOf returns how node 1 forwards to nodes that perform stands for.
func forwardingOf(e *elected, perform func(ctx context.Context, node uint64) (*service.ForwardedAnswer, error)) *forwarding {
	return &forwarding{
		node: 1, leads: e.leads, address: func(node uint64) string { return fmt.Sprintf("db%d:7070", node) },
		send: func(ctx context.Context, node uint64, _ *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
			return perform(ctx, node)
		},
	}
}

var (
	done     = &service.ForwardedAnswer{Message: []byte("done")}
	declined = &service.ForwardedAnswer{Err: &service.Error{Reason: reason.NotLeader}}
)

// A write that no node has begun with is tried again until one takes it.
func TestAForwardedWriteWaitsForALeader(t *testing.T) {
	for what, c := range map[string]struct {
		first, then uint64
		refusal     *service.ForwardedAnswer // of the node that leads first
		err         error
	}{
		"no node leads":                         {0, 2, nil, nil},
		"this node leads, and transfers that":   {1, 3, nil, nil},
		"the leader transfers the leadership":   {2, 3, declined, nil},
		"a new leader has not begun its tenure": {2, 2, declined, nil},
		"the leader stops":                      {2, 3, &service.ForwardedAnswer{Err: service.ShuttingDown}, nil},
		"the leader cannot be reached":          {2, 3, nil, peer.ErrUnreachable},
		"the leader was removed":                {2, 3, nil, kv.ErrInvalidArgument},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &elected{}
				e.lead(c.first, false)
				tries := 0
				f := forwardingOf(e, func(_ context.Context, node uint64) (*service.ForwardedAnswer, error) {
					if tries++; tries == 1 && c.first > 1 {
						return c.refusal, c.err
					}
					require.Equal(t, c.then, node)
					return done, nil
				})
				ended := make(chan error, 1)
				go func() {
					answer, err := f.do(t.Context(), nil)
					require.Equal(t, done, answer)
					ended <- err
				}()
				synctest.Wait()
				require.Empty(t, ended)
				if c.then != c.first {
					e.lead(c.then, false)
				}
				require.NoError(t, <-ended)
				require.Zero(t, f.waiting.Load())
			})
		})
	}
}

// If this node is the one that leads by now, it performs the write itself.
func TestAForwardedWriteStaysHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elected{}
		e.lead(2, false)
		f := forwardingOf(e, func(context.Context, uint64) (*service.ForwardedAnswer, error) {
			e.lead(1, false)
			return declined, nil
		})
		ended := make(chan error, 1)
		go func() {
			_, err := f.do(t.Context(), nil)
			ended <- err
		}()
		synctest.Wait()
		require.Empty(t, ended, "its tenure has not begun")
		e.lead(1, true)
		require.Equal(t, service.ErrLeads, <-ended)
	})
}

// The wait for a leader is bounded in time and in the number of writes.
func TestAForwardedWriteThatWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &elected{}
		e.lead(0, false)
		tries := 0
		f := forwardingOf(e, func(context.Context, uint64) (*service.ForwardedAnswer, error) {
			tries++
			return declined, nil
		})
		ended := make(chan error, maxWaiting+1)
		begin := time.Now()
		for range maxWaiting + 1 {
			go func() {
				_, err := f.do(t.Context(), nil)
				ended <- err
			}()
		}
		synctest.Wait()
		require.Len(t, ended, 1)
		for range maxWaiting + 1 {
			require.Equal(t, &kv.NotLeaderError{Address: "db0:7070"}, <-ended)
		}
		require.Equal(t, leaderWait, time.Since(begin))

		e.lead(2, false)
		answer, err := f.do(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, declined, answer)
		require.Equal(t, 2*leaderWait, time.Since(begin))
		require.Less(t, tries, 60)

		short, cancel := context.WithTimeout(t.Context(), longestPause)
		defer cancel()
		answer, err = f.do(short, nil)
		require.NoError(t, err)
		require.Equal(t, declined, answer, "nothing was done")
		require.Zero(t, f.waiting.Load())
	})
}

// A write that was sent to a leader which then stands still, or is cut off, ends when another node has
// led for a while, and not before: an answer may be on its way. What was not sent by then goes to the
// other node.
func TestAForwardedWriteLeavesALeaderThatWasReplaced(t *testing.T) {
	for _, sent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			e := &elected{}
			e.lead(2, false)
			f := forwardingOf(e, func(ctx context.Context, node uint64) (*service.ForwardedAnswer, error) {
				if node == 3 {
					return done, nil
				}
				<-ctx.Done()
				if sent { // as peer.Network.Forward says it
					return nil, fmt.Errorf("%w: %w", kv.ErrUncertain, context.Cause(ctx))
				}
				return nil, context.Cause(ctx)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				answer, err := f.do(ctx, nil)
				if err == nil {
					require.Equal(t, done, answer)
				}
				ended <- err
			}()
			time.Sleep(time.Minute)
			e.lead(0, false)
			time.Sleep(time.Minute)
			e.lead(2, false)
			time.Sleep(time.Minute)
			require.Empty(t, ended, "no other node leads")
			e.lead(3, false)
			time.Sleep(answerWait - 1)
			require.Empty(t, ended)
			if err := <-ended; sent {
				require.ErrorIs(t, err, kv.ErrUncertain)
				require.NotErrorIs(t, err, kv.ErrNotLeader)
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, ctx.Err())
		})
	}
}
