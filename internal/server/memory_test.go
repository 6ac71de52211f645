package server_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// An answer that its client does not read is charged until the transport has written
// it, in each of the three ways that it can travel.
func TestUnreadAnswersAreCharged(t *testing.T) {
	const size, budget = 1 << 20, 64 << 20
	value := strings.Repeat("v", size)
	for name, ask := range map[string]func(t *testing.T, f *fixture) (end func()){
		"pipeline": func(t *testing.T, f *fixture) func() {
			p := f.pipeline(t)
			for i := range 6 {
				p.send(getOp(uint64(i+1), "k"))
			}
			return func() {
				for range 6 {
					assert.Len(t, p.result().GetGet().GetItem().GetValue(), size)
				}
				p.close()
			}
		},
		"raw": func(t *testing.T, f *fixture) func() {
			c := f.raw(t)
			for i := range 6 {
				require.NoError(t, c.send(reads(uint32(i+1), "k")))
			}
			return func() {
				for range 6 {
					assert.Len(t, c.answer(t).Results[0].Value, size)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, server.Options{BufferBytes: budget})
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
	f := startWith(t, kv.DefaultLimits, server.Options{BufferBytes: 8 << 20})
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
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}

// A read for which there is no memory is refused, in the words of any overload; and
// what is within the limits is served once there is some.
func TestReadsWithoutMemoryAreRefused(t *testing.T) {
	const size = 1 << 20
	f := startWith(t, kv.DefaultLimits, server.Options{BufferBytes: 2 << 20})
	f.put(t, "k", strings.Repeat("v", size))
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	// Answers of a connection that reads nothing take it all.
	c := f.raw(t)
	for i := range 40 {
		require.NoError(t, c.send(reads(uint32(i+1), "k")))
	}
	testwait.Until(t, func() bool { return f.Stats().Bytes >= size })
	refused := 0
	for range 40 {
		if r := c.answer(t).Results[0]; r.Code != 0 {
			assert.EqualValues(t, codes.ResourceExhausted, r.Code)
			assert.Positive(t, r.RetryAfterMillis)
			refused++
		}
	}
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
	require.NoError(t, err)
	t.Logf("%d of 40 refused", refused)
}
