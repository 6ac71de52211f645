package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A client with more large requests than there is memory for is told that the server is
// overloaded, and so that nothing was done.
func TestALargeRequestThatIsEndedIsToldWhy(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, server.Options{BufferBytes: 24 << 20})
	value := make([]byte, 4<<20)
	var all sync.WaitGroup
	for i := range 4 {
		client := kvdpb.NewKVServiceClient(f.dial(t))
		for j := range 8 {
			all.Go(func() {
				for f.Stats().Shed["idle_streams"] == 0 {
					_, err := client.Put(t.Context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: fmt.Append(nil, i, j), Value: value}})
					if err == nil {
						continue
					}
					s := status.Convert(err)
					if !assert.Equal(t, codes.ResourceExhausted, s.Code(), "%v", err) || !assert.NotEmpty(t, s.Details(), "%v", err) {
						return
					}
				}
			})
		}
	}
	all.Wait()
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}

// A deadline of a client is cut to the greatest that the server allows.
func TestDeadlinesAreCut(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, server.Options{MaxDeadline: 50 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 99*time.Hour)
	defer cancel()
	// The request never comes.
	s, err := f.dial(t).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, kvdpb.KVService_Put_FullMethodName)
	require.NoError(t, err)
	err = s.RecvMsg(new(kvdpb.PutResponse))
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
}
