package service_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// An answer that its client does not read is charged until the transport has written
// it, in each of the three ways that it can travel.
func TestUnreadAnswersAreCharged(t *testing.T) {
	const size, budget = 1 << 20, 64 << 20
	const unread = 24 // more than the buffers of a connection take
	value := strings.Repeat("v", size)
	for name, ask := range map[string]func(t *testing.T, f *fixture) (end func()){
		"pipeline": func(t *testing.T, f *fixture) func() {
			p := f.pipeline(t)
			for i := range unread {
				p.send(getOp(uint64(i+1), "k"))
			}
			return func() {
				for range unread {
					assert.Len(t, p.result().GetGet().GetItem().GetValue(), size)
				}
				p.close()
			}
		},
		"raw": func(t *testing.T, f *fixture) func() {
			c := f.raw(t)
			for i := range unread {
				require.NoError(t, c.send(reads(uint32(i+1), "k")))
			}
			return func() {
				for range unread {
					assert.Len(t, c.answer(t).Results[0].Value, size)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: budget})
			f.put(t, "k", value)
			testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
			end := ask(t, f)
			testwait.Until(t, func() bool { return f.Stats().Bytes >= size })
			end()
			testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
		})
	}
}

// What an answer was charged comes back whatever becomes of the call.
func TestChargesOfAbandonedCallsComeBack(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 8 << 20})
	f.put(t, "k", strings.Repeat("v", 100_000))
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(testContext(t))
			if i%2 == 0 {
				go cancel()
			}
			defer cancel()
			_, _ = f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
			_, _ = f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: [][]byte{[]byte("k"), []byte("k")}})
		})
	}
	all.Wait()
	f.nothingCharged(t)
}

// So does that of the chunks of scans that their client leaves early, of which gRPC drops some: in one
// of some thirty such scans the stream is reset after gRPC has looked whether it is still there.
func TestChargesOfScansLeftEarlyComeBack(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 64 << 20})
	for i := range 64 {
		f.put(t, string(rune('0'+i)), strings.Repeat("v", 20_000))
	}
	for range 200 {
		ctx, cancel := context.WithCancel(testContext(t))
		stream, err := f.kv.Scan(ctx, &kvdpb.ScanRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		cancel()
	}
	f.nothingCharged(t)
}

// nothingCharged waits until all charges have come back, those of answers that gRPC has dropped by
// the garbage collector.
func (f *fixture) nothingCharged(t *testing.T) {
	t.Helper()
	testwait.Until(t, func() bool {
		runtime.GC()
		return f.Stats().Bytes == 0
	})
}

// A read for which there is no memory is refused, in the words of any overload; and
// what is within the limits is served once there is some.
func TestReadsWithoutMemoryAreRefused(t *testing.T) {
	const size = 1 << 20
	store := servicetest.New(kv.DefaultLimits)
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{BufferBytes: 2 << 20}, protocols...) })
	f.put(t, "k", strings.Repeat("v", size))
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	entered, leave := make(chan struct{}), make(chan struct{})
	store.OnWrite = func(context.Context, []*kv.Write) error {
		close(entered)
		<-leave
		return nil
	}
	p := f.pipeline(t)
	p.send(putOp(1, "other", strings.Repeat("v", size/2))) // holds three times that
	<-entered
	c := f.raw(t)
	r := c.exchange(t, reads(1, "k"))
	assert.EqualValues(t, codes.ResourceExhausted, r.Results[0].Code)
	assert.Positive(t, r.Results[0].RetryAfterMillis)
	assert.EqualValues(t, 1, f.Stats().Shed["bytes"])
	r = c.exchange(t, reads(2, "absent"))
	assert.EqualValues(t, codes.NotFound, r.Results[0].Code, "what is small has room")
	close(leave)
	assert.Nil(t, p.result().Status)
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	r = c.exchange(t, reads(3, "k"))
	assert.Len(t, r.Results[0].Value, size)
}
