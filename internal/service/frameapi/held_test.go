package frameapi

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// The bytes of a frame that has come in parts are reserved from then until the frame is answered,
// also if it is refused since there is no memory for more.
func TestAFrameThatHasComeStaysReservedUntilItsAnswer(t *testing.T) {
	conn, client := servicetest.TCPPair(t)
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{BufferBytes: 24 << 20})
	c := &rawTransport{frames: newFrames(s), conn: service.NewConn(s, conn), socket: rawconn.New(conn), limit: 8 << 20}
	c.in, c.room = newInput(nil, c.socket), c.makeRoom
	const size = 4 << 20
	var b frame.Builder
	b.Reset(frame.WriteFrame)
	b.Add(&frame.Op{Kind: frame.Put, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), size)})
	sent := make(chan error, 1)
	require.NoError(t, client.SetDeadline(testwait.Deadline()))
	go func() {
		_, err := client.Write(b.Finish(frame.Header{}))
		sent <- err
	}()
	f, err := c.Receive()
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.Zero(t, f.Discarded)
	assert.EqualValues(t, int64(f.Bytes())+opBytes, s.Memory().Used(), "the frame, and its operation")

	require.True(t, s.Memory().Take(s.Memory().Limit()/2, 0), "by another request")
	answered := new(answers)
	p := &Pipeline{transport: answered, frames: newFrames(s), ctx: t.Context(), conn: c.conn}
	p.token, p.err = make(chan struct{}, 1), io.EOF // it had the only frame
	p.serve(f, &ReceiveToken{pipeline: p, held: true})
	assert.Equal(t, []uint64{0}, answered.tags, "it is refused")
	Free(f)
	assert.Equal(t, s.Memory().Limit()/2, s.Memory().Used())
}
