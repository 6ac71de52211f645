package service_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Clients with more large requests than there is memory for take turns. One that is refused
// all the same is told that the server is overloaded, and so that nothing was done. The clock
// stands still unless all of them wait, so that no client pauses since the machine is busy.
func TestLargeRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 24 << 20
		f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: budget})
		value := make([]byte, 4<<20)
		rounds, callers := 2, 8
		if testsize.Reduced() {
			rounds, callers = 1, 3
		}
		begun := time.Now()
		var all sync.WaitGroup
		for i := range 4 {
			client := kvdpb.NewKVServiceClient(f.dial(t))
			for j := range callers {
				all.Go(func() {
					for done := 0; done < rounds; {
						_, err := client.Put(t.Context(), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: fmt.Append(nil, i, j), Value: value}})
						if err == nil {
							done++
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
		assert.Zero(t, time.Since(begun), "some waited for a timer")
		assert.Zero(t, f.Stats().Shed["idle_streams"], "none was ended after a part of it had come")
		testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	})
}

// A large request that is announced and does not come is ended once another waits, and
// its client is told that nothing was done.
func TestALargeRequestThatDoesNotComeIsEnded(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 24 << 20})
	part := make([]byte, 1000)
	binary.BigEndian.PutUint32(part[1:], 8<<20) // the length of the message
	const conns, streams = 2, 32
	for range conns {
		h := f.attack(t)
		for range streams {
			require.NoError(t, h.open(kvdpb.KVService_Put_FullMethodName))
			require.NoError(t, h.framer.WriteData(h.last-1, false, part))
		}
	}
	f.waits(t, conns*streams-1) // one has a place
	for i := range 2 {
		_, err := f.kv.Put(testContext(t), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte{byte('a' + i)}, Value: make([]byte, 4<<20)}})
		require.NoError(t, err)
	}
	assert.Positive(t, f.Stats().Shed["idle_streams"])
	testwait.Until(t, func() bool { return f.requests("Put", codes.ResourceExhausted) > 0 })
	f.honest(t, honestRounds)
}

// A deadline of a client is cut to the greatest that the server allows.
func TestDeadlinesAreCut(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{MaxDeadline: 98 * time.Hour})
	f.SetMaxDeadline(50 * time.Millisecond) // while it runs
	ctx, cancel := context.WithTimeout(t.Context(), 99*time.Hour)
	defer cancel()
	// The request never comes.
	s, err := f.dial(t).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, kvdpb.KVService_Put_FullMethodName)
	require.NoError(t, err)
	err = s.RecvMsg(new(kvdpb.PutResponse))
	assert.Equal(t, codes.DeadlineExceeded, status.Code(err), "%v", err)
}
