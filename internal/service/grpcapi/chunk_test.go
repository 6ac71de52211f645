package grpcapi

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// sentChunks is a stream that writes each message at once.
type sentChunks struct{ grpc.ServerStream }

func (sentChunks) SendMsg(m any) error {
	l := m.(*frame.Lent)
	l.Lender.Give(l.Bytes)
	return nil
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
	item := &kv.Item{Key: []byte("b"), Value: make([]byte, large)}
	require.False(t, c.add(item))
	require.NoError(t, c.send(sentChunks{}))
	assert.EqualValues(t, kv.ValueCopies*large, budget.Held())
	assert.GreaterOrEqual(t, memory.Used(), int64(kv.ValueCopies*large))

	c.reset()
	require.True(t, c.add(item))
	assert.True(t, c.borrowed, "a large value is copied")
	require.NoError(t, c.send(sentChunks{}))
	assert.Zero(t, budget.Held())
	c.release()
	assert.Zero(t, memory.Used())
}
