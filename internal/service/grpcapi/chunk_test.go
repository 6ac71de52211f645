package grpcapi

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// sentChunks is a stream that writes each message at once.
type sentChunks struct {
	grpc.ServerStream
	sent []byte // the last message
}

func (s *sentChunks) SendMsg(m any) error {
	data, err := frame.Codec().Marshal(m)
	if err == nil {
		s.sent = data.Materialize()
		data.Free()
	}
	return err
}

// A large value that follows small ones stays charged while the chunk before it is sent,
// and is then sent from where it lies, not copied.
func TestAValueThatWaitsForTheNextChunkStaysCharged(t *testing.T) {
	const large = 1 << 20
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{BufferBytes: 64 << 20}))
	memory := a.server.Memory()
	var budget kv.ReadBudget
	budget.Charge(memory)
	budget.Reset(large)
	c := chunk{call: &call{api: a, conn: &connection{}}, ctx: context.Background(), budget: &budget, size: chunkBytes}

	c.reset()
	require.True(t, c.add(&kv.Item{Key: []byte("a"), Value: []byte("small")}))
	budget.Return()
	require.True(t, budget.Take(large), "the scanner reads the next value")
	item := &kv.Item{Key: []byte("b"), Value: bytes.Repeat([]byte("v"), large), Version: 7}
	require.False(t, c.add(item))
	stream := new(sentChunks)
	require.NoError(t, c.send(stream))
	assert.EqualValues(t, kv.ValueCopies*large, budget.Held())
	assert.GreaterOrEqual(t, memory.Used(), int64(kv.ValueCopies*large))

	c.reset()
	require.True(t, c.add(item))
	assert.True(t, c.borrowed, "a large value is copied")
	c.response.NextPageToken, c.response.Meta = "token", &kvdpb.ResponseMeta{Version: 9}
	require.NoError(t, c.send(stream))
	want := &kvdpb.ScanResponse{
		Items: []*kvdpb.Item{{Key: item.Key, Value: item.Value, Version: 7}}, NextPageToken: "token", Meta: &kvdpb.ResponseMeta{Version: 9},
	}
	got := new(kvdpb.ScanResponse)
	require.NoError(t, proto.Unmarshal(stream.sent, got))
	assert.True(t, proto.Equal(want, got), "the value follows the rest")
	assert.Zero(t, budget.Held())
	c.release()
	assert.Zero(t, memory.Used())
}
