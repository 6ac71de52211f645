package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
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
		require.LessOrEqual(t, len(ids), servicetest.MaxSnapshots)
	}
}

// One client cannot have all snapshots, what it has does not last for ever if others need
// it, and what a connection still held is free for others.
func TestOneClientCannotHaveAllSnapshots(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: servicetest.MaxSnapshots})
	f.put(t, "k", "v")
	greedy := connect(t, f.listener)
	taken := beginAll(t, kvdpb.NewTxnServiceClient(greedy))
	assert.Len(t, taken, 50)
	_, err := kvdpb.NewTxnServiceClient(greedy).KeepSnapshot(context.Background(), &kvdpb.KeepSnapshotRequest{SnapshotId: taken[0]})
	require.NoError(t, err, "no other needs it")

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
	require.NoError(t, err, "a connection that has few keeps them")

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

// Ten greedy connections, which renew what they have, do not keep a new client from a
// snapshot, wherever they come from. What was taken from them is told to be gone.
func TestANewClientGetsASnapshotBesideGreedyOnes(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "10.0.0.1:1"} {
		t.Run(address, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: servicetest.MaxSnapshots})
			f.put(t, "k", "v")
			taken := make(map[uint64]kvdpb.TxnServiceClient)
			for range 12 {
				greedy := f.txnFrom(t, address)
				for _, id := range beginAll(t, greedy) {
					taken[id] = greedy
				}
			}
			for i := range 3 {
				late := f.txnFrom(t, fmt.Sprintf("10.0.1.%d:1", i))
				s, err := late.BeginSnapshot(testContext(t), new(kvdpb.BeginSnapshotRequest))
				require.NoError(t, err)
				_, err = late.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: s.SnapshotId})
				require.NoError(t, err)
			}
			gone := 0
			for id, greedy := range taken {
				if _, err := greedy.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: id}); err != nil {
					requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
					gone++
				}
			}
			assert.Less(t, gone, len(taken), "most have what they had")
		})
	}
}

// Nor do connections that have few each, if there are enough of them to have all: many of
// this machine, or two of each of many addresses.
func TestANewClientGetsASnapshotBesideManyModestOnes(t *testing.T) {
	const all = servicetest.MaxSnapshots
	for name, test := range map[string]struct {
		each    int // snapshots of a connection
		address func(conn int) string
		late    string
	}{
		"this machine":    {2, func(int) string { return "127.0.0.1:1" }, "127.0.0.1:2"},
		"other addresses": {1, func(conn int) string { return fmt.Sprintf("10.0.0.%d:1", conn%(all/2)) }, "10.0.1.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: all})
			f.put(t, "k", "v")
			var first []uint64
			for conn := range all / test.each {
				client := f.txnFrom(t, test.address(conn))
				for range test.each {
					s, err := client.BeginSnapshot(testContext(t), new(kvdpb.BeginSnapshotRequest))
					require.NoError(t, err)
					first = append(first, s.SnapshotId)
				}
			}
			late := f.txnFrom(t, test.late)
			s, err := late.BeginSnapshot(testContext(t), new(kvdpb.BeginSnapshotRequest))
			require.NoError(t, err)
			_, err = late.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: s.SnapshotId})
			require.NoError(t, err)
			gone := 0
			for _, id := range first {
				if _, err := late.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: id}); err != nil {
					requireFailure(t, err, codes.OutOfRange, "VERSION_GONE")
					gone++
				}
			}
			assert.Equal(t, 1, gone, "one made room")
		})
	}
}

func (f *fixture) txnFrom(t *testing.T, remote string) kvdpb.TxnServiceClient {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	f.serveAlso(t, from{l, remote})
	conn := connect(t, l)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return kvdpb.NewTxnServiceClient(conn)
}

// Leases that run out leave their shares.
func TestLeasesThatRunOutLeaveTheirShares(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: 4})
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
