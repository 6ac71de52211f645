package service_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// ends are a client's ends of one transport.
type ends struct {
	send    func(b *frame.Builder, r *frame.Request, h frame.Header) error
	receive func(r *frame.Response) error
}

// BenchmarkFrames keeps so many frames of so many operations under way by each
// transport, on one connection. Allocations are those of client and server.
func BenchmarkFrames(b *testing.B) {
	for _, transport := range []struct {
		name string
		open func(b *testing.B, address string) ends
	}{
		{"operations", openStream}, {"compact", openCompact}, {"raw", openRaw},
	} {
		for _, kind := range []frame.FrameKind{frame.ReadFrame, frame.WriteFrame} {
			for _, load := range []struct{ frames, ops int }{{1, 1}, {1, 64}, {4, 64}} {
				b.Run(fmt.Sprintf("%s/%v/%dx%d", transport.name, kind, load.frames, load.ops), func(b *testing.B) {
					s := service.New(servicetest.NewInstant(), service.Options{}, protocols...)
					l, err := net.Listen("tcp", "127.0.0.1:0")
					require.NoError(b, err)
					served := make(chan error, 1)
					go func() { served <- s.Serve(l) }()
					benchmarkFrames(b, transport.open(b, l.Addr().String()), kind, load.frames, load.ops)
					ctx, cut := context.WithCancel(context.Background())
					cut()
					require.ErrorIs(b, s.Shutdown(ctx), context.Canceled)
					require.NoError(b, <-served)
				})
			}
		}
	}
}

func benchmarkFrames(b *testing.B, e ends, kind frame.FrameKind, frames, ops int) {
	op := frame.Op{Kind: frame.Get, Key: []byte("user00000000000042")}
	if kind == frame.WriteFrame {
		op = frame.Op{Kind: frame.Put, Key: op.Key, Value: servicetest.InstantValue, Options: frame.Options{ClientID: 1 << 60}}
	}
	var builder frame.Builder
	var request frame.Request
	var response frame.Response
	sent, sequence := uint32(0), uint64(0)
	send := func() {
		builder.Reset(kind)
		request.Release()
		for i := range ops {
			if sequence++; kind == frame.WriteFrame {
				op.Sequence = sequence
			}
			op.Tag = uint64(i)
			builder.Add(&op)
			request.Ops = append(request.Ops, op)
		}
		sent++
		if err := e.send(&builder, &request, frame.Header{ID: sent, TimeoutMillis: 5000}); err != nil {
			b.Fatal(err)
		}
	}
	for range frames {
		send()
	}
	b.ReportAllocs()
	left := ops
	for b.Loop() {
		for left > 0 {
			if err := e.receive(&response); err != nil {
				b.Fatal(err)
			}
			left -= len(response.Results)
		}
		left += ops
		send()
	}
	b.ReportMetric(float64(b.N*ops)/b.Elapsed().Seconds(), "operations/s")
}

func openRaw(b *testing.B, address string) ends {
	conn, err := net.Dial("tcp", address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReaderSize(conn, 16<<10)
	_, err = io.WriteString(conn, frame.Preamble)
	require.NoError(b, err)
	_, err = in.Discard(len(frame.Preamble))
	require.NoError(b, err)
	return ends{
		func(builder *frame.Builder, _ *frame.Request, h frame.Header) error {
			_, err := conn.Write(builder.Finish(h))
			return err
		},
		func(r *frame.Response) error { return r.Read(in, 1<<30) },
	}
}

func openMessages(b *testing.B, address string) grpc.ClientStream {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	stream, err := kvdpb.NewKVServiceClient(conn).Pipeline(context.Background(), grpc.ForceCodecV2(frame.Codec()))
	require.NoError(b, err)
	return stream
}

func openCompact(b *testing.B, address string) ends {
	stream := openMessages(b, address)
	return ends{
		func(builder *frame.Builder, _ *frame.Request, h frame.Header) error {
			return stream.SendMsg(builder.Message(h))
		},
		func(r *frame.Response) error { return stream.RecvMsg(r) },
	}
}

func openStream(b *testing.B, address string) ends {
	stream := openMessages(b, address)
	return ends{
		func(_ *frame.Builder, r *frame.Request, h frame.Header) error {
			for i := range r.Ops {
				r.Ops[i].TimeoutMillis = h.TimeoutMillis
			}
			return stream.SendMsg(r.Encode())
		},
		func(r *frame.Response) error { return stream.RecvMsg(r) },
	}
}

// BenchmarkUnaryGet is what a client of another language pays for a Get: client and server,
// over a connection in memory.
func BenchmarkUnaryGet(b *testing.B) {
	f := startWith(b, kv.DefaultLimits, service.Options{})
	f.put(b, "k", strings.Repeat("v", 128))
	request := &kvdpb.GetRequest{Key: []byte("k")}
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := f.kv.Get(b.Context(), request); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
