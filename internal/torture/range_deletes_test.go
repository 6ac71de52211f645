package torture

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A server stays within its memory budget and a quarter more also while clients send batches of range
// deletes, each of which is stored once in every partition: batches that are within the limits of
// operations and bytes but take too much, and the most short range deletes that are accepted.
func TestMemoryStaysWithinTheBudgetWithRangeDeletes(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	for _, partitions := range []int{16, 64} {
		long, short := longestRanges(1024), shortRanges(4096)
		most := shortRanges(kv.DefaultLimits.MostTaken() / partitions / (len("ab") + kv.RangeDeleteBytes))
		withTinyElements(t, serve, []memoryCase{
			{name: fmt.Sprintf("1,024 long range deletes, %d partitions", partitions), attack: deleteRanges(long, codes.InvalidArgument), events: 100},
			{name: fmt.Sprintf("4,096 short range deletes, %d partitions", partitions), attack: deleteRanges(short, codes.InvalidArgument), events: 100},
			{name: fmt.Sprintf("the most short range deletes, %d partitions", partitions), attack: deleteRanges(most, codes.OK), events: 100},
			{name: fmt.Sprintf("range deletes in raw frames, %d partitions", partitions), attack: deleteRangesRaw(long, short, most), events: 100},
		}, "--partitions", fmt.Sprint(partitions))
	}
}

const longKey = 4 << 10

// longestRanges returns a batch of so many range deletes whose starts and ends are as long as keys may be.
func longestRanges(n int) []byte {
	return rangeDeletes(n, func(i int) (start, end []byte) {
		key := bytes.Repeat([]byte("k"), longKey)
		copy(key, fmt.Sprintf("%06d", i))
		end = bytes.Clone(key)
		end[longKey-1] = 'l'
		return key, end
	})
}

// shortRanges returns a batch of so many range deletes of the shortest keys.
func shortRanges(n int) []byte {
	return rangeDeletes(n, func(int) (start, end []byte) { return []byte("a"), []byte("b") })
}

func rangeDeletes(n int, bounds func(i int) (start, end []byte)) []byte {
	r := &kvdpb.WriteRequest{Atomic: true}
	for i := range n {
		start, end := bounds(i)
		r.Mutations = append(r.Mutations, &kvdpb.Mutation{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: &kvdpb.Range{Start: start, End: end}}})
	}
	encoded, err := proto.Marshal(r)
	if err != nil {
		panic(err)
	}
	return encoded
}

// deleteRanges returns an attack that sends a batch by many callers, by gRPC. Sent alone, it is answered
// with the code.
func deleteRanges(request []byte, alone codes.Code) func(ctx context.Context, t *testing.T, s *server) {
	return func(ctx context.Context, t *testing.T, s *server) {
		conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(asIs{})))
		if !assert.NoError(t, err) {
			return
		}
		var answer []byte
		err = conn.Invoke(ctx, kvdpb.KVService_Write_FullMethodName, &request, &answer)
		assert.Equal(t, alone.String(), status.Code(err).String(), "%v", err)
		assert.NoError(t, conn.Close())
		invoke(ctx, t, s, 32, func(int) (string, []byte) { return kvdpb.KVService_Write_FullMethodName, request })
	}
}

// deleteRangesRaw returns an attack that sends batches in raw frames.
func deleteRangesRaw(requests ...[]byte) func(ctx context.Context, t *testing.T, s *server) {
	return func(ctx context.Context, t *testing.T, s *server) {
		frames := make([]*frame.Builder, len(requests))
		for i, request := range requests {
			frames[i] = new(frame.Builder)
			frames[i].Reset(frame.CallFrame)
			frames[i].Add(&frame.Op{Kind: frame.Call, Method: frame.MethodWrite, Value: request})
		}
		rawFrames(ctx, t, s, 8, frames...)
	}
}
