package service_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// pipeline is the client's end of a pipeline in the words of the generated code.
type pipeline struct {
	t       testing.TB
	stream  stream
	results []*kvdpb.PipelineResponse_Result // received, not yet asked for
}

func (p *pipeline) send(ops ...*kvdpb.PipelineRequest_Op) {
	p.t.Helper()
	require.NoError(p.t, p.stream.Send(&kvdpb.PipelineRequest{Ops: ops}))
}

// frame returns the results of the next response frame.
func (p *pipeline) frame() []*kvdpb.PipelineResponse_Result {
	p.t.Helper()
	r, err := p.stream.Recv()
	require.NoError(p.t, err)
	return r.Results
}

// result returns the next result, in whatever frame it comes.
func (p *pipeline) result() *kvdpb.PipelineResponse_Result {
	p.t.Helper()
	for len(p.results) == 0 {
		p.results = p.frame()
	}
	r := p.results[0]
	p.results = p.results[1:]
	return r
}

// close ends the stream in order.
func (p *pipeline) close() {
	p.t.Helper()
	require.NoError(p.t, p.stream.CloseSend())
	_, err := p.stream.Recv()
	require.ErrorIs(p.t, err, io.EOF)
}

func getOp(tag uint64, key string) *kvdpb.PipelineRequest_Op {
	return &kvdpb.PipelineRequest_Op{Tag: tag, Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: []byte(key)}}}
}

func putOp(tag uint64, key, value string) *kvdpb.PipelineRequest_Op {
	return durablePutOp(tag, key, value, kvdpb.Durability_DURABILITY_UNSPECIFIED)
}

func durablePutOp(tag uint64, key, value string, d kvdpb.Durability) *kvdpb.PipelineRequest_Op {
	return &kvdpb.PipelineRequest_Op{Tag: tag, Op: &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{
		Item:    &kvdpb.Item{Key: []byte(key), Value: []byte(value)},
		Options: &kvdpb.RequestOptions{Durability: d},
	}}}
}

func deleteOp(tag uint64, key string) *kvdpb.PipelineRequest_Op {
	return &kvdpb.PipelineRequest_Op{Tag: tag, Op: &kvdpb.PipelineRequest_Op_Delete{Delete: &kvdpb.DeleteRequest{Key: []byte(key)}}}
}

func TestPipelineAnswersEachOperation(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	p := f.pipeline(t)
	p.send(putOp(10, "a", "1"), putOp(11, "b", ""))
	versions := map[uint64]uint64{}
	for range 2 {
		r := p.result()
		versions[r.Tag] = r.GetPut().GetMeta().GetVersion()
	}
	assert.Equal(t, map[uint64]uint64{10: 1, 11: 2}, versions)

	p.send(getOp(1, "a"), getOp(2, "b"), getOp(3, "c"))
	r := p.result()
	assert.EqualValues(t, 1, r.Tag)
	assert.Equal(t, "1", string(r.GetGet().GetItem().GetValue()))
	assert.EqualValues(t, 1, r.GetGet().GetItem().GetVersion())
	assert.EqualValues(t, 2, r.GetGet().GetMeta().GetVersion(), "read at the newest version")
	r = p.result()
	assert.NotNil(t, r.GetGet().GetItem(), "an empty value is a value")
	assert.Empty(t, r.GetGet().GetItem().GetValue())
	r = p.result()
	assert.Equal(t, "KEY_NOT_FOUND", r.Status.GetReason())

	p.send(deleteOp(1, "a"))
	assert.EqualValues(t, 3, p.result().GetDelete().GetMeta().GetVersion())
	p.send() // an empty frame has no answer
	p.send(getOp(1, "a"))
	assert.Equal(t, "KEY_NOT_FOUND", p.result().Status.GetReason())
	p.close()

	stats := f.Stats()
	assert.EqualValues(t, 5, stats.Frames.Count())
	assert.EqualValues(t, 7, stats.Frames.Sum)
	assert.EqualValues(t, 3, stats.Frames.Buckets[0], "two of one operation and the empty one")
	assert.EqualValues(t, 1, stats.Frames.Buckets[1])
	assert.EqualValues(t, 1, stats.Frames.Buckets[2])
	assert.EqualValues(t, 2, f.requests("Pipeline.Get", codes.OK))
	assert.EqualValues(t, 2, f.requests("Pipeline.Get", codes.NotFound))
	assert.EqualValues(t, 2, f.requests("Pipeline.Put", codes.OK))
	assert.EqualValues(t, 1, f.requests("Pipeline.Delete", codes.OK))
	assert.EqualValues(t, 1, f.requests("Pipeline", codes.OK))
}

// Reads do not wait for writes of the same frame, nor weak writes for strong
// ones: each group is one call of the store with an answer of its own.
func TestAFrameIsServedInGroups(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	calls := make(chan string, 10)
	syncNow := make(chan struct{})
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		calls <- fmt.Sprintf("read %d", len(reads))
		return nil
	}
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		calls <- fmt.Sprintf("write %d %s", len(writes), writes[0].Durability)
		if writes[0].Durability == kv.DurabilitySync {
			<-syncNow
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	p := f.pipeline(t)
	p.send(
		durablePutOp(1, "a", "", kvdpb.Durability_DURABILITY_SYNC), getOp(2, "x"),
		durablePutOp(3, "b", "", kvdpb.Durability_DURABILITY_MEMORY), getOp(4, "y"),
		durablePutOp(5, "c", "", kvdpb.Durability_DURABILITY_SYNC),
	)
	tags := []uint64{p.result().Tag, p.result().Tag, p.result().Tag}
	assert.ElementsMatch(t, []uint64{2, 3, 4}, tags, "none waits for the sync")
	p.send(getOp(6, "z"))
	assert.EqualValues(t, 6, p.result().Tag, "neither does the next frame")
	close(syncNow)
	assert.Len(t, p.frame(), 2, "the synced writes share an answer")
	p.close()
	close(calls)
	var all []string
	for call := range calls {
		all = append(all, call)
	}
	assert.ElementsMatch(t, []string{"read 2", "write 2 sync", "write 1 memory", "read 1"}, all)
}

// Plain writes of a frame are one call of the store whatever else is in it. Those
// that look at what is there first are another, and so are reads at each version.
func TestAMixedFrameIsServedInGroups(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	calls := make(chan string, 10)
	entered, gate := make(chan struct{}), make(chan struct{})
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		calls <- fmt.Sprintf("read %d", len(reads))
		return nil
	}
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		looks := writes[0].If != nil || writes[0].Previous != nil
		calls <- fmt.Sprintf("write %d %t", len(writes), looks)
		if looks {
			close(entered)
			<-gate
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	ctx := testContext(t)
	_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("a", "0")}})
	require.NoError(t, err)
	first := f.snapshot(t).Version
	_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("a", "1")}})
	require.NoError(t, err)
	second := f.snapshot(t).Version

	at := func(tag, version uint64) *kvdpb.PipelineRequest_Op {
		op := getOp(tag, "a")
		op.GetGet().AtVersion = version
		return op
	}
	conditional, previous := putOp(7, "c", "2"), deleteOp(8, "a")
	conditional.GetPut().Precondition = mustNotExist
	previous.GetDelete().ReturnPrevious = true
	named, expiring := putOp(9, "n", "2"), putOp(10, "e", "2")
	named.GetPut().Options = &kvdpb.RequestOptions{ClientId: 1, Sequence: 1}
	expiring.GetPut().Item.TtlMs = 1000
	p := f.pipeline(t)
	p.send(
		at(1, first), putOp(2, "p", "2"), at(3, second), getOp(4, "x"), at(5, first), conditional,
		deleteOp(6, "q"), previous, named, expiring, at(11, second+100),
	)
	<-entered
	results := map[uint64]*kvdpb.PipelineResponse_Result{}
	for range 9 {
		r := p.result()
		results[r.Tag] = r
	}
	assert.Nil(t, results[7], "a write that reads first waits alone")
	assert.Nil(t, results[8])
	close(gate)
	for range 2 {
		r := p.result()
		results[r.Tag] = r
	}
	assert.Len(t, results, 11)
	for _, tag := range []uint64{1, 5} {
		assert.Equal(t, "0", string(results[tag].GetGet().Item.Value))
		assert.Equal(t, first, results[tag].GetGet().Meta.Version)
	}
	assert.Equal(t, "1", string(results[3].GetGet().Item.Value))
	assert.Equal(t, "KEY_NOT_FOUND", results[4].Status.Reason)
	assert.Equal(t, "VERSION_GONE", results[11].Status.Reason)
	for _, tag := range []uint64{2, 6, 7, 9, 10} {
		assert.Nil(t, results[tag].Status, tag)
	}
	assert.Equal(t, "1", string(results[8].GetDelete().Previous.Value))
	p.close()
	close(calls)
	var all []string
	for call := range calls {
		all = append(all, call)
	}
	assert.ElementsMatch(t, []string{"read 2", "read 1", "read 1", "read 1", "write 4 false", "write 2 true"}, all)
}

// What writes return of what was there is brought into memory a few at a time.
func TestPreviousValuesOfAFrameComeInParts(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store := servicetest.New(kv.DefaultLimits)
		var calls []int // one call at a time
		store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
			asked := 0
			for _, w := range writes {
				if w.Previous != nil {
					asked++
				}
			}
			calls = append(calls, asked)
			if len(calls) == 2 {
				writes[1].Err = fmt.Errorf("%w: %w", kv.ErrUncertain, context.Canceled)
			}
			return nil
		}
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		_, err := f.kv.Write(testContext(t), &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("k", "old")}})
		require.NoError(t, err)
		var ops []*kvdpb.PipelineRequest_Op
		for tag := range uint64(60) {
			op := putOp(tag, "k", fmt.Sprint(tag))
			op.GetPut().ReturnPrevious = tag%3 != 0
			op.GetPut().Precondition = mustExist
			ops = append(ops, op)
		}
		p := open(t, f)
		p.send(ops...)
		want, inDoubt := "old", 0
		for tag := range uint64(60) {
			r := p.result()
			require.Equal(t, tag, r.Tag)
			if r.Status.GetReason() == "OUTCOME_UNKNOWN" {
				inDoubt++
				continue
			}
			if tag%3 == 0 {
				assert.Nil(t, r.GetPut().Previous)
			} else {
				assert.Equal(t, want, string(r.GetPut().Previous.GetValue()))
			}
			want = fmt.Sprint(tag)
		}
		assert.Equal(t, 1, inDoubt)
		assert.Equal(t, []int{16, 16, 8}, calls)
		p.send(getOp(60, "k"))
		assert.Equal(t, want, string(p.result().GetGet().GetItem().GetValue()))
		p.close()
	})
}

// What can never succeed is refused alone and never reaches the store.
func TestInvalidOperationsAreRefusedAlone(t *testing.T) {
	f := startWith(t, smallLimits, service.Options{})
	p := f.pipeline(t)
	long := string(make([]byte, smallLimits.KeyBytes+1))
	big := string(make([]byte, smallLimits.ValueBytes+1))
	conditional := func(tag uint64, c *kvdpb.Precondition) *kvdpb.PipelineRequest_Op {
		op := deleteOp(tag, "k")
		op.GetDelete().Precondition = c
		return op
	}
	nameless := deleteOp(13, "k")
	nameless.GetDelete().Options = &kvdpb.RequestOptions{Retried: true}
	p.send(
		getOp(1, ""), getOp(2, long), putOp(3, "", "v"), putOp(4, long, "v"), putOp(5, "k", big), deleteOp(6, long),
		&kvdpb.PipelineRequest_Op{Tag: 7}, durablePutOp(8, "k", "v", 4), putOp(9, "k", "v"),
		conditional(11, versionEquals(0)), conditional(12, valueEquals(big)), nameless,
	)
	reasons := map[uint64]string{}
	for range 12 {
		r := p.result()
		reasons[r.Tag] = r.Status.GetReason()
	}
	assert.Equal(t, map[uint64]string{
		1: "INVALID_REQUEST", 2: "TOO_LARGE", 3: "INVALID_REQUEST", 4: "TOO_LARGE", 5: "TOO_LARGE", 6: "TOO_LARGE",
		7: "INVALID_REQUEST", 8: "INVALID_REQUEST", 9: "", 11: "INVALID_REQUEST", 12: "TOO_LARGE", 13: "INVALID_REQUEST",
	}, reasons)
	p.send(getOp(10, "k"))
	assert.EqualValues(t, 10, p.result().Tag)
	p.close()
}

func TestAnOperationsTimeoutIsHonoured(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store := servicetest.New(kv.DefaultLimits)
		untilDeadline := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		store.OnLookup = func(ctx context.Context, reads []*kv.Lookup) error {
			if string(reads[0].Key) == "slow" {
				return untilDeadline(ctx)
			}
			return nil
		}
		store.OnWrite = func(ctx context.Context, writes []*kv.Write) error {
			writes[0].Err = fmt.Errorf("%w: %w", kv.ErrUncertain, untilDeadline(ctx))
			return nil
		}
		f := start(t, store, func() *service.Server {
			return service.New(store, service.Options{Deadline: 50 * time.Millisecond}, protocols...)
		})
		p := open(t, f)
		short, patient := getOp(1, "slow"), getOp(2, "fast")
		short.TimeoutMs, patient.TimeoutMs = 10, 60_000
		p.send(short, patient)
		reasons := map[uint64]string{}
		for range 2 {
			r := p.result()
			reasons[r.Tag] = r.Status.GetReason()
		}
		assert.Equal(t, map[uint64]string{1: "DEADLINE_EXCEEDED", 2: "KEY_NOT_FOUND"}, reasons)

		p.send(getOp(3, "slow"))
		assert.Equal(t, "DEADLINE_EXCEEDED", p.result().Status.GetReason(), "the server's default")
		testwait.Doubling(t, 5*time.Millisecond, func(d time.Duration) (begun bool) {
			p.send(withTimeout(putOp(4, "k", "v"), uint32(d.Milliseconds())))
			r := p.result()
			assert.EqualValues(t, codes.DeadlineExceeded, r.Status.GetCode())
			return r.Status.GetReason() == "OUTCOME_UNKNOWN"
		})
		p.close()
	})
}

// At most eight frames of a stream are served at a time; the ninth waits.
func TestFramesInFlightAreBounded(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store := servicetest.New(kv.DefaultLimits)
		entered, leave := make(chan struct{}, 20), make(chan struct{})
		var now, most atomic.Int32
		store.OnLookup = func(context.Context, []*kv.Lookup) error {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			entered <- struct{}{}
			<-leave
			return nil
		}
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		p := open(t, f)
		for tag := range uint64(20) {
			p.send(getOp(tag, "k"))
		}
		for range 8 {
			<-entered
		}
		assert.Empty(t, entered)
		close(leave)
		seen := map[uint64]bool{}
		for range 20 {
			seen[p.result().Tag] = true
		}
		assert.Len(t, seen, 20)
		assert.EqualValues(t, 8, most.Load())
		p.close()
	})
}

func TestLargeAnswersAreSplit(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		f := startWith(t, kv.DefaultLimits, service.Options{})
		value := string(make([]byte, 100<<10))
		f.put(t, "k", value)
		p := open(t, f)
		var ops []*kvdpb.PipelineRequest_Op
		for tag := range uint64(10) {
			ops = append(ops, getOp(tag, "k"))
		}
		p.send(ops...)
		frames, results := 0, 0
		for results < 10 {
			n := len(p.frame())
			assert.LessOrEqual(t, n, 3)
			results += n
			frames++
		}
		assert.Equal(t, 4, frames)
		p.close()
	})
}

func TestAFrameOfTooManyOperationsEndsTheStream(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ops := make([]*kvdpb.PipelineRequest_Op, 1025)
	for i := range ops {
		ops[i] = getOp(uint64(i), "k")
	}
	p := f.pipeline(t)
	p.send(ops[:1024]...)
	for range 1024 {
		p.result()
	}
	p.send(ops...)
	_, err := p.stream.Recv()
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")

	p = f.pipeline(t)
	frame := binary.LittleEndian.AppendUint32(nil, 16+1025*3)
	frame = append(frame, 1, 0)
	frame = binary.LittleEndian.AppendUint16(frame, 1025)
	frame = append(append(frame, make([]byte, 12)...), bytes.Repeat([]byte("\x01\x01k"), 1025)...)
	require.NoError(t, p.stream.Send(&kvdpb.PipelineRequest{Frame: frame}))
	_, err = p.stream.Recv()
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
}

// What is no message of operations ends the stream with a reason, too.
func TestAStreamOfGarbageIsToldWhy(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	stream, err := f.conn.NewStream(testContext(t), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, kvdpb.KVService_Pipeline_FullMethodName)
	require.NoError(t, err)
	garbage := new(kvdpb.PipelineRequest)
	garbage.ProtoReflect().SetUnknown([]byte("\x08\x01\x0a\x01\x08")) // an operation that is cut off
	require.NoError(t, stream.SendMsg(garbage))
	requireFailure(t, stream.RecvMsg(new(kvdpb.PipelineResponse)), codes.InvalidArgument, "INVALID_REQUEST")
}

// A client that goes away in the middle leaves nothing running: goleak and the
// gauges are the judges.
func TestAClientThatGoesAwayLeavesNothing(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered := make(chan struct{}, 1)
	ended := make(chan error, 1)
	store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error {
		entered <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	ctx, cancel := context.WithCancel(testContext(t))
	stream, err := f.kv.Pipeline(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{getOp(1, "k")}}))
	<-entered
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	testwait.Until(t, func() bool {
		stats := f.Stats()
		return stats.Streams == 0 && stats.Bytes == 0
	})
}

// What a frame reads is brought into memory little by little, and answered all
// the same.
func TestLargeReadsOfAFrameAreServedInParts(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		const keys, size, page = 40, 300 << 10, 1 << 20
		store := servicetest.New(kv.DefaultLimits)
		var calls atomic.Int64
		var last []*kv.Lookup // of the call before
		store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
			calls.Add(1)
			for _, r := range reads {
				if r.Budget == nil {
					return errors.New("a read without a budget")
				}
			}
			bytes := 0
			for _, r := range last {
				bytes += len(r.Value)
			}
			if bytes > page+size {
				return fmt.Errorf("%d bytes were read at once", bytes)
			}
			last = reads
			return nil
		}
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
		var gets []*kvdpb.PipelineRequest_Op
		for i := range keys {
			if i%3 != 0 {
				f.put(t, fmt.Sprint(i), string(make([]byte, size)))
			}
			gets = append(gets, getOp(uint64(i), fmt.Sprint(i)))
		}
		p := open(t, f)
		p.send(gets...)
		seen := map[uint64]bool{}
		for range keys {
			r := p.result()
			require.False(t, seen[r.Tag], "%d is answered twice", r.Tag)
			seen[r.Tag] = true
			if r.Tag%3 == 0 {
				require.Equal(t, "KEY_NOT_FOUND", r.Status.GetReason())
				continue
			}
			require.Nil(t, r.Status)
			require.Len(t, r.GetGet().GetItem().GetValue(), size)
		}
		assert.Greater(t, calls.Load(), int64(keys*2/3*size/(page+size)))
		p.close()
		assert.EqualValues(t, keys-14, f.requests("Pipeline.Get", codes.OK))
		assert.EqualValues(t, 14, f.requests("Pipeline.Get", codes.NotFound))
	})
}
