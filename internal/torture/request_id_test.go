package torture

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/vfs"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A client that gives two writes one request id is told so. The second write is not
// acknowledged and dropped.
func TestARequestIDBelongsToItsWrite(t *testing.T) {
	m := &machine{disk: vfs.NewMem()}
	m.start(t)
	defer func() { m.stop(t) }()
	client := func() kvdpb.KVServiceClient {
		conn, err := grpc.NewClient("passthrough:machine", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return m.address.Load().DialContext(ctx) }))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		return kvdpb.NewKVServiceClient(conn)
	}
	db := client()
	id := &kvdpb.RequestOptions{ClientId: 7, Sequence: 1, Durability: kvdpb.Durability_DURABILITY_SYNC}
	put := func(value string) (*kvdpb.PutResponse, error) {
		return db.Put(t.Context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: []byte(value)}, Options: id})
	}
	first, err := put("1")
	require.NoError(t, err)
	for range 2 {
		_, err = put("2")
		require.Equal(t, codes.InvalidArgument, status.Code(err), "a different write under a used request id: %v", err)
		info, ok := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
		require.True(t, ok)
		require.Equal(t, "REQUEST_ID_REUSED", info.Reason)

		again, err := put("1")
		require.NoError(t, err)
		require.True(t, again.Meta.Deduplicated)
		require.Equal(t, first.Meta.Version, again.Meta.Version)
		got, err := db.Get(t.Context(), &kvdpb.GetRequest{Key: []byte("k")})
		require.NoError(t, err)
		require.Equal(t, "1", string(got.Item.Value))
		m.cutPower(t, vfs.DropAll, rand.New(rand.NewPCG(1, 2)))
		db = client() // the same over a restart
	}
}
