package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
	"github.com/kvd-db/kvd/internal/server/servertest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// beginAll begins snapshots until one is refused, and returns them.
func beginAll(t *testing.T, client kvdpb.TxnServiceClient) (ids []uint64) {
	t.Helper()
	for {
		s, err := client.BeginSnapshot(context.Background(), new(kvdpb.BeginSnapshotRequest))
		if err != nil {
			info, retryAfter := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
			assert.Equal(t, "snapshots", info.Metadata["cause"])
			assert.Contains(t, err.Error(), "release some or try again later")
			assert.Positive(t, retryAfter)
			return ids
		}
		ids = append(ids, s.SnapshotId)
		require.LessOrEqual(t, len(ids), servertest.MaxSnapshots)
	}
}

// One client cannot have all snapshots, what it has does not last for ever if others need
// it, and what a connection leaves behind is there for others.
func TestOneClientCannotHaveAllSnapshots(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, server.Options{Snapshots: servertest.MaxSnapshots})
	f.put(t, "k", "v")
	greedy, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.listener.DialContext(ctx) }))
	require.NoError(t, err)
	taken := beginAll(t, kvdpb.NewTxnServiceClient(greedy))
	assert.Len(t, taken, 50)
	_, err = kvdpb.NewTxnServiceClient(greedy).KeepSnapshot(context.Background(), &kvdpb.KeepSnapshotRequest{SnapshotId: taken[0]})
	require.NoError(t, err, "nobody needs it")

	honest := kvdpb.NewTxnServiceClient(f.dial(t))
	own := beginAll(t, honest)
	assert.Len(t, own, 25)
	for len(own) > 1 {
		_, err := honest.ReleaseSnapshot(context.Background(), &kvdpb.ReleaseSnapshotRequest{SnapshotId: own[0]})
		require.NoError(t, err)
		own = own[1:]
	}

	// Others take what is left, so that little is free.
	for range 20 {
		if len(beginAll(t, kvdpb.NewTxnServiceClient(f.dial(t)))) == 0 {
			break
		}
	}
	_, err = kvdpb.NewTxnServiceClient(greedy).KeepSnapshot(context.Background(), &kvdpb.KeepSnapshotRequest{SnapshotId: taken[0]})
	requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
	_, err = honest.KeepSnapshot(context.Background(), &kvdpb.KeepSnapshotRequest{SnapshotId: own[0]})
	require.NoError(t, err, "who has few keeps them")

	require.NoError(t, greedy.Close())
	testwait.Until(t, func() bool {
		s, err := honest.BeginSnapshot(context.Background(), new(kvdpb.BeginSnapshotRequest))
		if err != nil {
			return false
		}
		own = append(own, s.SnapshotId)
		return len(own) > 10
	})
	assert.Positive(t, f.Stats().Shed["snapshots"])
}

// Leases that run out leave their shares.
func TestLeasesThatRunOutLeaveTheirShares(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, server.Options{Snapshots: 4})
	f.put(t, "k", "v")
	for range 10 {
		s, err := f.txn.BeginSnapshot(context.Background(), &kvdpb.BeginSnapshotRequest{LeaseMs: 1})
		if err == nil {
			require.EqualValues(t, 1, s.LeaseMs)
		}
	}
	testwait.Until(t, func() bool {
		f.store.Advance(time.Second)
		_, err := f.txn.BeginSnapshot(context.Background(), &kvdpb.BeginSnapshotRequest{LeaseMs: 1})
		return err == nil
	})
}
