package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// get asks for a key in a unary call. The client does not open the window of the stream,
// so most of a large answer stays at the server.
func (h *hostile) get(t *testing.T, key string) {
	t.Helper()
	request, err := proto.Marshal(&kvdpb.GetRequest{Key: []byte(key)})
	require.NoError(t, err)
	h.send(t, kvdpb.KVService_Get_FullMethodName, true, request)
}

// send opens a stream with a short message.
func (h *hostile) send(t *testing.T, method string, last bool, message []byte) {
	t.Helper()
	require.NoError(t, h.open(method))
	require.NoError(t, h.framer.WriteData(h.last-1, last, append([]byte{0, 0, 0, 0, byte(len(message))}, message...)))
}

// A connection on which answers to unary calls are not read is ended, with the memory that
// they have, and its client is told why.
func TestUnreadUnaryAnswersEndTheConnection(t *testing.T) {
	const size = 1 << 20
	testwait.Doubling(t, time.Second, func(deadline time.Duration) (all bool) {
		f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 64 << 20, Deadline: deadline})
		f.put(t, "k", strings.Repeat("v", size))
		testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
		h := f.attack(t)
		for range 4 {
			h.get(t, "k")
		}
		assert.Contains(t, <-h.goAway, "answers on this connection are not read")
		all = f.requests("Get", codes.OK) == 4 // that the first is not read may end it before the last
		testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
		_, found := f.get(t, "k", 0)
		assert.True(t, found)
		return all
	})
}

// Until then a connection has no more of them than its share.
func TestUnreadUnaryAnswersOfAConnectionAreCapped(t *testing.T) {
	const size, budget = 1 << 20, 64 << 20
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: budget, Deadline: time.Hour, MaxDeadline: 2 * time.Hour})
	f.put(t, "k", strings.Repeat("v", size))
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	h := f.attack(t)
	done := func() uint64 { return f.requests("Get", codes.OK) + f.requests("Get", codes.ResourceExhausted) }
	for i := range 64 {
		h.get(t, "k")
		testwait.Until(t, func() bool { return done() == uint64(i+1) })
	}
	assert.Positive(t, f.requests("Get", codes.ResourceExhausted))
	assert.LessOrEqual(t, f.Stats().Bytes, int64(budget/4+2*size+64<<10), "a quarter, and one answer")
	for range 3 {
		_, found := f.get(t, "k", 0)
		assert.True(t, found, "others are served")
	}
	h.leave()
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}

// What the transport had queued for the streams of a connection that ends is given back.
func TestWhatAConnectionDidNotReadComesBack(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 64 << 20})
	for i := range 4 {
		f.put(t, string(rune('a'+i)), strings.Repeat("v", 1<<20))
	}
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	for name, ask := range map[string]func(h *hostile){
		"unary": func(h *hostile) { h.get(t, "a") },
		"scan": func(h *hostile) {
			request, err := proto.Marshal(&kvdpb.ScanRequest{})
			require.NoError(t, err)
			h.send(t, kvdpb.KVService_Scan_FullMethodName, true, request)
		},
		"pipeline": func(h *hostile) {
			request, err := proto.Marshal(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{getOp(1, "a")}})
			require.NoError(t, err)
			h.send(t, kvdpb.KVService_Pipeline_FullMethodName, false, request)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := f.attack(t)
			ask(h)
			testwait.Until(t, func() bool { return f.Stats().Bytes >= 1<<20 })
			h.leave()
			testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
		})
	}
}
