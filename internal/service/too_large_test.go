package service_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A plain gRPC client is told the reason and the limit of a message that is too large, by
// how much ever, and keeps its connection.
func TestAMessageThatIsTooLargeHasAReason(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	limit := service.MessageBytes(kv.DefaultLimits)
	sizes := []int{limit + 1, 11 << 20, 40 << 20}
	if testsize.Reduced() {
		sizes = sizes[:1]
	}
	for _, size := range sizes {
		value := make([]byte, size)
		for name, call := range map[string]func(ctx context.Context) error{
			"Put": func(ctx context.Context) error {
				_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: value}})
				return err
			},
			"Commit": func(ctx context.Context) error {
				_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Delete{Delete: value}}}})
				return err
			},
			"Check": func(ctx context.Context) error {
				_, err := healthpb.NewHealthClient(f.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: string(value)})
				return err
			},
			"Scan": func(ctx context.Context) error {
				stream, err := f.kv.Scan(ctx, &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: value}})
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			"Watch": func(ctx context.Context) error {
				stream, err := healthpb.NewHealthClient(f.conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: string(value)})
				if err == nil {
					_, err = stream.Recv()
				}
				return err
			},
			"Pipeline": func(ctx context.Context) error {
				stream, err := f.kv.Pipeline(ctx)
				require.NoError(t, err)
				p := &pipeline{t: t, stream: stream}
				for i := range 3 {
					p.send(putOp(uint64(i), "k", "v"))
					p.result()
				}
				err = stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{{Op: &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: value}}}}}})
				if err == nil || err == io.EOF {
					_, err = stream.Recv()
				}
				return err
			},
		} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				info, _ := requireFailure(t, call(testContext(t)), codes.InvalidArgument, "TOO_LARGE")
				assert.Equal(t, fmt.Sprint(limit), info.Metadata["limit"])
				assert.Contains(t, info.Metadata, "size")
			})
		}
	}
	assert.EqualValues(t, 1, f.Stats().Accepted, "the connection is still the first one")
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}

// A message that is too large is refused by its announced length. The server gives its
// client no window for it.
func TestAMessageThatIsTooLargeIsNotRead(t *testing.T) {
	for _, method := range []string{kvdpb.KVService_Put_FullMethodName, kvdpb.KVService_Pipeline_FullMethodName, kvdpb.KVService_Scan_FullMethodName} {
		t.Run(methodName(method), func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{})
			var window atomic.Int64
			ended := make(chan struct{}, 1)
			h := f.attack(t, func(got http2.Frame) {
				switch got := got.(type) {
				case *http2.WindowUpdateFrame:
					if got.StreamID != 0 {
						window.Add(int64(got.Increment))
					}
				case *http2.HeadersFrame:
					if got.StreamEnded() {
						ended <- struct{}{}
					}
				}
			})
			require.NoError(t, h.open(method))
			prefix := make([]byte, 5)
			binary.BigEndian.PutUint32(prefix[1:], 40<<20)
			for i := range prefix { // in as many frames as there can be
				require.NoError(t, h.framer.WriteData(h.last-1, false, prefix[i:i+1]))
			}
			select {
			case <-ended:
			case <-testContext(t).Done():
				t.Fatal("no answer")
			}
			assert.Less(t, window.Load(), int64(1<<20))
		})
	}
}
