package daemon

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Reads that name a version to come are refused, and do not keep other reads out: here they are as
// many as the gate of reads lets in.
func TestReadsOfAVersionToComeKeepNoReadOut(t *testing.T) {
	starts, _ := clusterOf(t, 1)
	r := starts[0]()
	putAnywhere(t, []*running{r}, "k")
	conn := r.dial()
	client := kvdpb.NewKVServiceClient(conn)
	const keys = 4096
	request := &kvdpb.BatchGetRequest{Options: &kvdpb.RequestOptions{MinVersion: 1 << 55}}
	for i := range keys {
		request.Keys = append(request.Keys, fmt.Append(nil, i))
	}
	var calls sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)*2048/keys) {
		calls.Go(func() {
			_, err := client.BatchGet(testwait.Context(t), request)
			assert.Equal(t, codes.OutOfRange, status.Code(err), "%v", err)
			assert.ErrorContains(t, err, "begin anew without it")
		})
	}
	calls.Wait()
	require.Zero(t, r.inside())
	value, err := r.client.Get(t.Context(), []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "value of k", string(value))
	require.NoError(t, conn.Close())
	require.NoError(t, r.end())
}
