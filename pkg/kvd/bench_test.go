package kvd

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// These benchmarks go over loopback TCP, to the real engine on a disk with every
// setting at its default. A lone Get should cost what a plain
// unary call does (BenchmarkLoneGet against BenchmarkUnaryEcho, or the ratio that
// BenchmarkLoneGetRatio reports); many callers should cost far less each.

func BenchmarkUnaryEcho(b *testing.B) {
	echo := startEcho(b)
	for b.Loop() {
		echo()
	}
}

func BenchmarkLoneGet(b *testing.B) {
	db := startTCP(b)
	get := getter(b, db)
	for b.Loop() {
		get()
	}
}

func BenchmarkLonePut(b *testing.B) {
	db := startTCP(b)
	ctx := context.Background()
	key, value := []byte("key-000000000001"), make([]byte, 128)
	for b.Loop() {
		if err := db.Put(ctx, key, value); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoneUpdate is a transaction that reads and writes one key: a snapshot,
// a read and a commit, one after the other.
func BenchmarkLoneUpdate(b *testing.B) {
	db := startTCP(b)
	ctx := context.Background()
	key, value := []byte("key-000000000001"), make([]byte, 128)
	require.NoError(b, db.Put(ctx, key, value))
	for b.Loop() {
		err := db.Update(ctx, func(tx *Txn) error {
			if _, err := tx.Get(ctx, key); err != nil {
				return err
			}
			return tx.Put(ctx, key, value)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoneGetRatio takes turns, so that both meet the same machine.
func BenchmarkLoneGetRatio(b *testing.B) {
	echo, get := startEcho(b), getter(b, startTCP(b))
	const turn = 200
	var echoed, got time.Duration
	for range 5 * turn {
		echo()
		get()
	}
	for b.Loop() {
		start := time.Now()
		for range turn {
			echo()
		}
		echoed += time.Since(start)
		start = time.Now()
		for range turn {
			get()
		}
		got += time.Since(start)
	}
	b.ReportMetric(float64(got)/float64(echoed), "get/echo")
	b.ReportMetric(float64(got.Nanoseconds())/float64(b.N*turn), "ns/get")
	b.ReportMetric(float64(echoed.Nanoseconds())/float64(b.N*turn), "ns/echo")
}

func BenchmarkGet(b *testing.B) {
	for _, callers := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			db := startTCP(b)
			get := getter(b, db)
			b.SetParallelism(callers / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					get()
				}
			})
		})
	}
}

func startTCP(b *testing.B) *Client {
	b.Helper()
	e, err := engine.Open(b.TempDir(), engine.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	s := service.New(daemon.Store(e), service.Options{}, daemon.Protocols()...)
	address := listen(b, s.Serve)
	b.Cleanup(func() { require.NoError(b, s.Shutdown(context.Background())) })
	db, err := Open(address)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	return db
}

func getter(b *testing.B, db *Client) func() {
	ctx := context.Background()
	key := []byte("key-000000000001")
	require.NoError(b, db.Put(ctx, key, make([]byte, 128)))
	return func() {
		if _, err := db.Get(ctx, key); err != nil {
			b.Error(err)
		}
	}
}

// echoServer answers a Get with the value it was made with.
type echoServer struct {
	kvdpb.UnimplementedKVServiceServer
	value []byte
}

func (s *echoServer) Get(context.Context, *kvdpb.GetRequest) (*kvdpb.GetResponse, error) {
	return &kvdpb.GetResponse{Item: &kvdpb.Item{Value: s.value, Version: 1}, Meta: &kvdpb.ResponseMeta{Version: 1}}, nil
}

// startEcho returns a unary call of a gRPC server and client with gRPC's own
// settings.
func startEcho(b *testing.B) func() {
	b.Helper()
	s := grpc.NewServer()
	kvdpb.RegisterKVServiceServer(s, &echoServer{value: make([]byte, 128)})
	address := listen(b, s.Serve)
	b.Cleanup(s.Stop)
	cc, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, cc.Close()) })
	client := kvdpb.NewKVServiceClient(cc)
	key := []byte("key-000000000001")
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := client.Get(ctx, &kvdpb.GetRequest{Key: key}); err != nil {
			b.Error(err)
		}
	}
}

func listen(b *testing.B, serve func(net.Listener) error) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	b.Cleanup(func() { require.NoError(b, <-served) })
	return l.Addr().String()
}
