package daemon

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A client that knows one node alone writes by it in every way, also if that does not lead.
func TestAClientOfAnyNodeWrites(t *testing.T) {
	nodes := calmNodes(t)
	follower := nodes[(putAnywhere(t, nodes, "k")+1)%3]
	db, ctx := follower.client, testwait.Context(t)
	// Another node may lead at any time, as after a pause of the machine: then a write is done again.
	do := func(write func() error) {
		t.Helper()
		testwait.Until(t, func() bool {
			err := write()
			require.True(t, err == nil || errors.Is(err, kvd.ErrReadOnly) || errors.Is(err, kvd.ErrUncertain) || errors.Is(err, kvd.ErrUnavailable), "%v", err)
			return err == nil
		})
	}
	do(func() error { return db.Put(ctx, []byte("a"), []byte("1"), kvd.TTL(24*time.Hour)) })
	do(func() error { return db.Delete(ctx, []byte("k")) })
	do(func() error { return db.DeleteRange(ctx, kvd.Prefix([]byte("none"))) })
	do(func() error {
		var b kvd.Batch
		b.Put([]byte("b"), []byte("2"))
		b.Put([]byte("c"), []byte("2"))
		_, err := db.Apply(ctx, &b)
		return err
	})
	do(func() error {
		p := db.Pipeline()
		for i := range 200 {
			p.Put(fmt.Appendf(nil, "p/%03d", i), []byte("3"))
		}
		return p.Do(ctx)
	})
	var t1 kvd.Timings
	do(func() error { return db.Put(ctx, []byte("timed"), nil, kvd.Timed(&t1)) })
	do(func() error { // reads at a snapshot of this node
		return db.Update(ctx, func(tx *kvd.Txn) error {
			a, err := tx.Get(ctx, []byte("a"))
			if err != nil {
				return err
			}
			b, err := tx.Get(ctx, []byte("b"))
			if err != nil {
				return err
			}
			return tx.Put(ctx, []byte("sum"), append(a, b...))
		})
	})
	for _, r := range nodes {
		got, err := r.client.Get(ctx, []byte("sum"))
		require.NoError(t, err)
		require.Equal(t, "12", string(got))
		count := 0
		for _, err := range r.client.Scan(ctx, kvd.Prefix([]byte("p/"))) {
			require.NoError(t, err)
			count++
		}
		require.Equal(t, 200, count)
	}

	// A transaction conflicts with a write that came by another node.
	conn, err := grpc.NewClient(follower.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	txn := kvdpb.NewTxnServiceClient(conn)
	snapshot, err := txn.BeginSnapshot(ctx, &kvdpb.BeginSnapshotRequest{LeaseMs: 60_000})
	require.NoError(t, err)
	commit := func(key string) error {
		_, err := txn.Commit(ctx, &kvdpb.CommitRequest{
			ReadVersion: snapshot.Version, Epoch: snapshot.Epoch, ReadKeys: [][]byte{[]byte(key)},
			Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: []byte("d")}}}},
		})
		return err
	}
	do(func() error { return nodes[0].client.Put(ctx, []byte("a"), []byte("4")) })
	testwait.Until(t, func() bool {
		err := commit("a")
		require.Error(t, err)
		return status.Code(err) == codes.Aborted
	})
	testwait.Until(t, func() bool { return commit("b") == nil })

	// The leader does not wait for a version that the follower does not have either.
	snapshot.Version = 1 << 55
	testwait.Until(t, func() bool {
		err := commit("b")
		require.Error(t, err)
		return status.Code(err) == codes.OutOfRange
	})
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
}

// A client that knows nothing of clusters, and one address, hears nothing of transfers of the leadership:
// its node tries again what was refused, be it the one that led, that leads now, or another one.
func TestTransfersAreNotSeenByClients(t *testing.T) {
	nodes := calmNodes(t)
	ctx := testwait.Context(t)
	term := func() int {
		for {
			for _, r := range nodes {
				if term, err := strconv.Atoi(termOf(t, r)); err == nil {
					return term
				}
			}
		}
	}
	testwait.Until(t, func() bool { // again if the nodes elect by themselves, as after a pause of the machine
		putAnywhere(t, nodes, "k")
		before, ended := term(), make(chan struct{})
		var writers sync.WaitGroup
		failed := make(chan error, len(nodes))
		wrote := make([]chan struct{}, len(nodes))
		for i, r := range nodes {
			conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			wrote[i] = make(chan struct{})
			writers.Go(func() {
				defer func() { require.NoError(t, conn.Close()) }()
				for {
					_, err := kvdpb.NewKVServiceClient(conn).Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("a")}})
					if err != nil {
						failed <- fmt.Errorf("node %d: %w", i+1, err)
						<-ended
						return
					}
					select {
					case wrote[i] <- struct{}{}:
					case <-ended:
						return
					default:
					}
				}
			})
		}
		const transfers = 12
		moved := 0
		for range transfers {
			if _, err := nodes[0].client.TransferLeadership(ctx, 0); err == nil {
				moved++
			}
			for i := range nodes { // each has written since
				select {
				case <-wrote[i]:
				case err := <-failed:
					failed <- err
				}
			}
		}
		close(ended)
		writers.Wait()
		if moved < transfers || term() != before+transfers {
			return false
		}
		select {
		case err := <-failed:
			require.NoError(t, err)
		default:
		}
		return true
	})
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
}

// A leader that stops hands the leadership over before it waits for its calls: the others take writes while
// a client still reads a long answer.
func TestALeaderThatStopsHandsOverBeforeItWaits(t *testing.T) {
	nodes := calmNodes(t)
	ctx := testwait.Context(t)
	leader := 0
	testwait.Until(t, func() bool { // again if the nodes elect in between, as after a pause of the machine
		leader = putAnywhere(t, nodes, "k")
		for i := range 16 {
			if nodes[leader].client.Put(ctx, fmt.Appendf(nil, "large/%d", i), make([]byte, 256<<10)) != nil {
				return false
			}
		}
		return termOf(t, nodes[leader]) != ""
	})
	old := nodes[leader]
	conn, err := grpc.NewClient(old.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	scan, err := kvdpb.NewKVServiceClient(conn).Scan(ctx, &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte("large/"), End: []byte("large0")}})
	require.NoError(t, err)
	_, err = scan.Recv()
	require.NoError(t, err)
	old.stop()
	other := nodes[(leader+1)%3]
	testwait.Until(t, func() bool {
		err := other.client.Put(ctx, []byte("during"), nil)
		if err != nil {
			select {
			case err := <-old.ended:
				old.ended <- err
				require.Fail(t, "no write succeeded before the old leader had ended")
			default:
			}
		}
		return err == nil
	})
	require.Empty(t, old.ended, "it ended before another node took a write")
	for range 2 { // the rest of the answer
		if _, err = scan.Recv(); err != nil {
			break
		}
	}
	require.NoError(t, err, "the scan was cut off before")
	require.NoError(t, conn.Close())
	require.NoError(t, <-old.ended)
	for _, r := range nodes {
		if r != old {
			require.NoError(t, r.end())
		}
	}
}
