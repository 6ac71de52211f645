package replicated

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
)

// leaseOutcome is the end of a write that depends on a lease.
type leaseOutcome struct {
	err       error
	succeeded bool // of an execution
}

// requireLease returns a batch that puts work if the lease is there.
func requireLease(work string) *kv.WriteBatch {
	b := &kv.WriteBatch{}
	b.Put([]byte(work), []byte("done"))
	b.Require(leaseGuard())
	return b
}

func leaseGuard() kv.Guard {
	return kv.Guard{Key: []byte("lease"), Condition: kv.Condition{Kind: kv.IfPresent}}
}

// An entry of the log sets the clock, and a lease has expired from it on. A write that is appended
// after that entry, and before it is committed, finds no lease: a reader of a version in between
// sees neither the lease nor the write.
func TestAConditionHoldsAtItsPlaceInTheLog(t *testing.T) {
	present := kv.Condition{Kind: kv.IfPresent}
	for name, test := range map[string]struct {
		write func(context.Context, *engine.Engine, kv.Snapshot) leaseOutcome
		want  error
	}{
		"a batch": {func(ctx context.Context, e *engine.Engine, _ kv.Snapshot) leaseOutcome {
			_, err := e.Apply(ctx, requireLease("work"), kv.WriteOptions{})
			return leaseOutcome{err: err}
		}, kv.ErrConditionFailed},
		"writes of a frame": {func(ctx context.Context, e *engine.Engine, _ kv.Snapshot) leaseOutcome {
			put := kv.Op{Kind: kv.KindPut, Key: []byte("lease"), Value: []byte("forever")}
			w, other := kv.Write{Op: put, If: &present}, kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("other")}}
			if err := e.Write(ctx, []*kv.Write{&other, &w}); err != nil || other.Err != nil {
				return leaseOutcome{err: errors.Join(err, other.Err)}
			}
			return leaseOutcome{err: w.Err}
		}, kv.ErrConditionFailed},
		"a transaction with a condition": {func(ctx context.Context, e *engine.Engine, s kv.Snapshot) leaseOutcome {
			tx := kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Keys: [][]byte{[]byte("work")}, Batch: requireLease("work")}
			_, err := e.Commit(ctx, &tx, kv.WriteOptions{})
			return leaseOutcome{err: err}
		}, kv.ErrConflict},
		"a transaction that has read the lease": {func(ctx context.Context, e *engine.Engine, s kv.Snapshot) leaseOutcome {
			b := &kv.WriteBatch{}
			b.Put([]byte("work"), []byte("done"))
			lease := [][]byte{[]byte("lease")}
			tx := kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Keys: lease, Expiring: lease, Batch: b}
			_, err := e.Commit(ctx, &tx, kv.WriteOptions{})
			return leaseOutcome{err: err}
		}, kv.ErrConflict},
		"an execution": {func(ctx context.Context, e *engine.Engine, _ kv.Snapshot) leaseOutcome {
			then, otherwise := &kv.WriteBatch{}, &kv.WriteBatch{}
			then.Put([]byte("work"), []byte("done"))
			otherwise.Put([]byte("instead"), []byte("done"))
			succeeded, _, err := e.Execute(ctx, []kv.Guard{leaseGuard()}, then, otherwise, kv.WriteOptions{})
			return leaseOutcome{err, succeeded}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCluster(t, 3, nil)
				defer c.stop()
				leader := c.leader()
				_, err := leader.store.Apply(t.Context(), expiring("lease", leader.store.Now()+500), kv.WriteOptions{})
				require.NoError(t, err)
				require.Equal(t, "value", leader.get("lease"))
				s, err := leader.store.BeginSnapshot(t.Context(), time.Minute)
				require.NoError(t, err)

				// The leader hears that the others follow, and not that they have its entries.
				c.lose(func(_, to uint64, m *pb.Message) bool { return to == leader.id && m.GetType() == pb.MsgAppResp })
				time.Sleep(1500 * time.Millisecond) // an entry sets the clock each second
				require.Equal(t, "value", leader.get("lease"), "the entry is not committed")
				outcomes := make(chan leaseOutcome, 1)
				go func() { outcomes <- test.write(t.Context(), leader.store, s) }()
				synctest.Wait()             // a caller that tried again and again would not come to rest
				time.Sleep(2 * time.Second) // nor within a limit of attempts
				require.Empty(t, outcomes)
				c.lose(nil)
				got := <-outcomes
				if test.want == nil {
					require.NoError(t, got.err)
				} else {
					require.ErrorIs(t, got.err, test.want)
				}
				require.False(t, got.succeeded)
				for _, n := range c.nodes {
					require.Empty(t, n.get("lease"))
					require.Empty(t, n.get("work"))
					if test.want == nil {
						require.Equal(t, "done", n.get("instead"))
					}
				}
				c.agree()
			})
		})
	}
}
