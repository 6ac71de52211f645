package grpcapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testConn returns a connection that came by no listener.
func testConn(a *api, conn net.Conn) *connection {
	return newConnection(service.NewConn(a.server, conn))
}

// The frames are found however the bytes are cut, and reading stops after headers.
func TestFramesAreFoundHoweverTheyCome(t *testing.T) {
	frame := func(kind byte, stream uint32, payload int) []byte {
		b := []byte{0, byte(payload >> 8), byte(payload), kind, 0}
		b = binary.BigEndian.AppendUint32(b, stream)
		return append(b, make([]byte, payload)...)
	}
	var all []byte
	for _, f := range [][]byte{make([]byte, h2PrefaceBytes), frame(4, 0, 0), frame(h2Headers, 1, 20), frame(h2Data, 1, 300), frame(h2Headers, 3, 0), frame(h2Continuation, 3, 5), frame(h2Data, 3, 1)} {
		all = append(all, f...)
	}
	stops := []int{h2PrefaceBytes + 9 + 29, h2PrefaceBytes + 9 + 29 + 309 + 9, h2PrefaceBytes + 9 + 29 + 309 + 9 + 14}
	for part := 1; part <= len(all); part++ {
		a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{}))
		near, far := net.Pipe()
		go func() {
			for rest := all; len(rest) > 0; rest = rest[min(part, len(rest)):] {
				_, err := far.Write(rest[:min(part, len(rest))])
				assert.NoError(t, err)
			}
			assert.NoError(t, far.Close())
		}()
		c := a.newHTTP2Conn(testConn(a, near), nil)
		var got []byte
		var ends []int
		for buffer := make([]byte, 100); ; {
			n, err := c.Read(buffer)
			got = append(got, buffer[:n]...)
			ends = append(ends, len(got))
			if err != nil {
				break
			}
		}
		require.True(t, bytes.Equal(all, got), "in parts of %d", part)
		require.Subset(t, ends, stops, "in parts of %d", part)
		require.EqualValues(t, 3, c.in.last)
		require.EqualValues(t, 301, c.in.data)
		require.NoError(t, near.Close())
	}
}

// What a client sends is never a reason to allow it more.
func TestAcknowledgementsAllowNothing(t *testing.T) {
	for name, c := range map[string]struct {
		frame h2Frame
		want  uint64
	}{
		"data":                {h2Frame{kind: h2Data, length: 1}, 3},
		"empty data":          {h2Frame{kind: h2Data, flags: h2EndStream}, 0},
		"headers":             {h2Frame{kind: h2Headers, length: 9}, 0},
		"ping":                {h2Frame{kind: h2Ping, length: 8}, 1},
		"answer to a ping":    {h2Frame{kind: h2Ping, flags: h2Ack, length: 8}, 0},
		"settings":            {h2Frame{kind: h2Settings}, 1},
		"answer to settings":  {h2Frame{kind: h2Settings, flags: h2Ack}, 0},
		"reset":               {h2Frame{kind: h2ResetStream, length: 4}, 0},
		"update of a window":  {h2Frame{kind: 0x8, length: 4}, 0},
		"end of a connection": {h2Frame{kind: h2GoAway, length: 8}, 0},
	} {
		assert.Equal(t, c.want, c.frame.replies(), name)
	}
}

// A farewell does not tear a frame apart that is being sent.
func TestAFarewellComesBetweenFrames(t *testing.T) {
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{}))
	near, far := net.Pipe()
	c := a.newHTTP2Conn(testConn(a, near), nil)
	heard := make(chan []byte)
	go func() {
		var all bytes.Buffer
		_, err := all.ReadFrom(far)
		assert.NoError(t, err)
		heard <- all.Bytes()
	}()
	begun := []byte{0, 0, 3, h2Data, 0, 0, 0, 0, 1, 'a'}
	n, err := c.Write(begun)
	require.NoError(t, err)
	require.Equal(t, len(begun), n)
	c.in.last, c.in.ended = 7, &floodError{"streams"}
	a.server.Options().Lifetimes.ShutdownWait = time.Hour
	said := make(chan struct{})
	go func() {
		defer close(said)
		c.sayFarewell()
	}()
	testwait.Until(t, func() bool {
		c.out.Lock()
		defer c.out.Unlock()
		return c.out.farewell != nil
	})
	for range 2 {
		n, err = c.Write([]byte("bcxxxxxxxxxx"))
		require.NoError(t, err)
		require.Equal(t, 12, n)
	}
	require.NoError(t, near.Close())
	<-said
	want := append(append(begun, "bc"...), appendGoAway(nil, 7, h2EnhanceYourCalm, c.in.ended.Error())...)
	assert.Equal(t, want, <-heard)
}

// A client repeats a call that GOAWAY says was never processed, without asking its caller. So
// the connection performs nothing of a stream above the number that the frame has, also if the
// frame takes long to write.
func TestAStreamBeyondTheFarewellIsNotPerformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := servicetest.New(kv.DefaultLimits)
		performed := make(chan string, 2)
		stay := make(chan struct{})
		store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
			key := string(writes[0].Op.Key)
			performed <- key
			if key == "late" {
				<-stay // its answer does not contend with the farewell
			}
			return nil
		}
		a := newAPI(service.New(store, service.Options{Lifetimes: service.Lifetimes{ShutdownWait: time.Hour}}))
		served := make(chan error, 1)
		go func() { served <- a.grpc.Serve(&a.handover) }()
		near, far := net.Pipe()
		c := a.newHTTP2Conn(testConn(a, near), nil)
		require.True(t, a.handover.give(c))

		framer := http2.NewFramer(far, far)
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		put := func(stream uint32, key string) {
			block.Reset()
			for _, field := range [][2]string{
				{":method", "POST"}, {":scheme", "http"}, {":path", kvdpb.KVService_Put_FullMethodName}, {":authority", "x"},
				{"content-type", "application/grpc"}, {"te", "trailers"},
			} {
				require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
			}
			message, err := proto.Marshal(&kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key)}})
			require.NoError(t, err)
			data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
			require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
			require.NoError(t, framer.WriteData(stream, true, data))
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for {
				f, err := framer.ReadFrame()
				if headers, is := f.(*http2.HeadersFrame); !assert.NoError(t, err) || is && headers.StreamEnded() {
					return
				}
			}
		}()
		_, err := io.WriteString(far, http2.ClientPreface)
		require.NoError(t, err)
		require.NoError(t, framer.WriteSettings())
		put(1, "early")
		<-answered
		require.Equal(t, "early", <-performed)

		evicted := make(chan struct{})
		go func() {
			defer close(evicted)
			c.Evict()
		}()
		synctest.Wait() // it writes the farewell, which is not read
		put(3, "late")
		synctest.Wait()
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		require.IsType(t, new(http2.GoAwayFrame), f)
		last := f.(*http2.GoAwayFrame).LastStreamID
		close(performed)
		for range performed {
			assert.GreaterOrEqual(t, last, uint32(3), "the client takes the call for never processed, and repeats it")
		}
		_, err = framer.ReadFrame()
		require.ErrorIs(t, err, io.EOF)
		<-evicted
		close(stay)
		a.grpc.Stop()
		require.NoError(t, <-served)
		require.NoError(t, far.Close())
	})
}

// Trailers of an older stream do not take back that later ones were opened.
func TestTrailersDoNotLowerTheLastStream(t *testing.T) {
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{}))
	near, far := net.Pipe()
	c := a.newHTTP2Conn(testConn(a, near), nil)
	for _, f := range []h2Frame{{kind: h2Headers, stream: 1}, {kind: h2Headers, stream: 3}, {kind: h2Headers, flags: h2EndStream, stream: 1}} {
		c.heard(&f)
	}
	assert.EqualValues(t, 3, c.in.last)
	assert.EqualValues(t, 3, c.of.calls.last)
	require.NoError(t, near.Close())
	require.NoError(t, far.Close())
}
