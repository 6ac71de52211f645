package service_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func rangeDeletes(n, bytesOfKey int) (all []*kvdpb.Mutation) {
	start, end := bytes.Repeat([]byte("a"), bytesOfKey), bytes.Repeat([]byte("b"), bytesOfKey)
	for range n {
		all = append(all, &kvdpb.Mutation{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: &kvdpb.Range{Start: start, End: end}}})
	}
	return all
}

// rangeDeleters are the calls that delete ranges; the last one only one.
var rangeDeleters = map[string]func(ctx context.Context, c grpc.ClientConnInterface, m []*kvdpb.Mutation) error{
	"write": func(ctx context.Context, c grpc.ClientConnInterface, m []*kvdpb.Mutation) error {
		_, err := kvdpb.NewKVServiceClient(c).Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: m})
		return err
	},
	"commit": func(ctx context.Context, c grpc.ClientConnInterface, m []*kvdpb.Mutation) error {
		_, err := kvdpb.NewTxnServiceClient(c).Commit(ctx, &kvdpb.CommitRequest{Mutations: m})
		return err
	},
	"execute": func(ctx context.Context, c grpc.ClientConnInterface, m []*kvdpb.Mutation) error {
		_, err := kvdpb.NewTxnServiceClient(c).Execute(ctx, &kvdpb.ExecuteRequest{ThenMutations: m})
		return err
	},
}

// While the store has a batch of range deletes, it is charged for all copies that the store makes of
// each, by whatever way it comes; and also if that is more than large requests may use of a small
// account. A batch that would take too much does not reach the store.
func TestRangeDeletesAreChargedForTheirCopies(t *testing.T) {
	for _, c := range []struct {
		name                string
		copies, ranges, key int
	}{
		{"64 copies", 64, 100, 100},
		{"the most of 2 copies", 2, 540, 4 << 10},
		{"the most of 64 copies", 64, 17, 4 << 10},
		{"one range, 1,024 copies", 1024, 1, 4 << 10},
	} {
		limits := kv.DefaultLimits
		limits.RangeCopies = c.copies
		for call, write := range rangeDeleters {
			for _, transport := range []string{"gRPC", "frames"} {
				t.Run(c.name+", "+call+", "+transport, func(t *testing.T) {
					f := startWith(t, limits, service.Options{BufferBytes: 24 << 20})
					var charged atomic.Int64
					var least int64
					f.store.OnApply = func(_ context.Context, b *kv.WriteBatch) error {
						charged.Store(f.Memory().Used())
						least = int64(b.Bytes() + (service.WriteCopies-1)*b.Takes(limits))
						return nil
					}
					var conn grpc.ClientConnInterface = f.conn
					if transport == "frames" {
						conn = f.calls(t)
					}
					require.NoError(t, write(testContext(t), conn, rangeDeletes(c.ranges, c.key)))
					assert.GreaterOrEqual(t, charged.Load(), least, "of the request, and of record and frame of the log")
					testwait.Until(t, func() bool { return f.Memory().Used() == 0 })
				})
			}
		}
	}
}

// A batch whose range deletes take too much is refused before the store has it.
func TestTooManyRangeDeletesAreRefused(t *testing.T) {
	limits := kv.DefaultLimits
	limits.RangeCopies = 64
	for call, write := range rangeDeleters {
		t.Run(call, func(t *testing.T) {
			f := startWith(t, limits, service.Options{})
			f.store.OnApply = func(context.Context, *kv.WriteBatch) error {
				assert.Fail(t, "the store has it")
				return nil
			}
			for _, m := range [][]*kvdpb.Mutation{rangeDeletes(1000, 4<<10), rangeDeletes(4096, 1), rangeDeletes(18, 4<<10)} {
				err := write(testContext(t), f.conn, m)
				requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
				assert.ErrorContains(t, err, "range deletes is stored in all 64 partitions; split it into several batches")
			}
		})
	}
}
