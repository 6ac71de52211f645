package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Snapshots that clients left open, and whose leases have ended, count no more: a client that has
// the only ones goes on renewing them.
func TestLeasesThatHaveEndedTakeNoneFromOthers(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, *grpc.ClientConn){
		"the client has gone": func(t *testing.T, conn *grpc.ClientConn) { require.NoError(t, conn.Close()) },
		"the client stays": func(t *testing.T, conn *grpc.ClientConn) {
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{Snapshots: servicetest.MaxSnapshots})
			f.put(t, "k", "v")
			var own []uint64
			for range 20 {
				own = append(own, f.snapshot(t).SnapshotId)
			}
			for free := servicetest.MaxSnapshots - len(own); free > 4; { // none is refused
				conn := connect(t, f.listener)
				for n := 0; n < free; n++ {
					_, err := kvdpb.NewTxnServiceClient(conn).BeginSnapshot(testContext(t), &kvdpb.BeginSnapshotRequest{LeaseMs: 1})
					require.NoError(t, err)
					free--
				}
				leave(t, conn)
			}
			testwait.Until(t, func() bool { return name == "the client stays" || f.Stats().Connections == 1 })
			f.store.Advance(time.Second) // their leases end
			require.Equal(t, len(own), f.store.SnapshotCount(), "there are no others")
			for _, id := range own {
				_, err := f.txn.KeepSnapshot(testContext(t), &kvdpb.KeepSnapshotRequest{SnapshotId: id})
				require.NoError(t, err, "there are no others")
			}
		})
	}
}

// Snapshots whose leases have ended are not held by their client any more.
func TestLeasesThatHaveEndedLeaveTheQuota(t *testing.T) {
	c := withQuota(t, auth.Quota{Snapshots: 4})
	for range 2 {
		_, err := c.txn.BeginSnapshot(c.ctx(), &kvdpb.BeginSnapshotRequest{LeaseMs: 1})
		require.NoError(t, err)
	}
	c.store.Advance(time.Second)
	testwait.Until(t, func() bool { return c.usage().Snapshots == 0 }, "nothing is held")
}
