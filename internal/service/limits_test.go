package service_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func put(key, value string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_Put{Put: &kvdpb.Item{Key: []byte(key), Value: []byte(value)}}}
}

func del(key string) *kvdpb.Mutation {
	return &kvdpb.Mutation{Op: &kvdpb.Mutation_Delete{Delete: []byte(key)}}
}

// Each limit of a request is reached by one that succeeds and passed by one that
// is refused, with a message that names both.
func TestLimitsOfRequests(t *testing.T) {
	f := startWith(t, smallLimits, service.Options{})
	ctx := testContext(t)
	bytes := func(n int) string { return strings.Repeat("x", n) }
	putItem := func(key, value string) error {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte(key), Value: []byte(value)}})
		return err
	}
	write := func(atomic bool, m ...*kvdpb.Mutation) error {
		_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: atomic, Mutations: m})
		return err
	}
	batchGet := func(keys ...string) error {
		var raw [][]byte
		for _, key := range keys {
			raw = append(raw, []byte(key))
		}
		_, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: raw})
		return err
	}
	scan := func(start, end string) error {
		stream, err := f.kv.Scan(ctx, &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte(start), End: []byte(end)}})
		require.NoError(t, err)
		for err == nil {
			_, err = stream.Recv()
		}
		if err == io.EOF {
			return nil
		}
		return err
	}
	require.NoError(t, putItem("full", bytes(50)))
	for name, test := range map[string]struct {
		at, above error
		message   string
	}{
		"key":              {putItem(bytes(8), ""), putItem(bytes(9), ""), "key has 9 bytes, limit is 8"},
		"value":            {putItem("k", bytes(64)), putItem("k", bytes(65)), "value has 65 bytes, limit is 64"},
		"batch operations": {write(true, del("a"), del("b"), del("c"), del("d")), write(true, del("a"), del("b"), del("c"), del("d"), del("e")), "batch has 5 operations, limit is 4"},
		"batch bytes":      {write(true, put("a", bytes(49)), put("b", bytes(49))), write(true, put("a", bytes(49)), put("b", bytes(50))), "batch has 101 bytes, limit is 100"},
		"value in a batch": {write(true, put("a", bytes(64))), write(true, put("a", bytes(65))), "value has 65 bytes, limit is 64"},
		"independent":      {write(false, del("a"), del("b"), del("c"), del("d")), write(false, del("a"), del("b"), del("c"), del("d"), del("e")), "batch has 5 operations, limit is 4"},
		"keys of a get":    {batchGet("a", "b", "c", "d"), batchGet("a", "b", "c", "d", "e"), "5 keys, limit is 4"},
		"bytes of a get":   {batchGet("full", "full"), batchGet("full", "full", "full"), "the answer has more than 100 bytes; ask for fewer keys"},
		"scan bound":       {scan(bytes(8), ""), scan("", bytes(9)), "9 bytes, limit is 8"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, test.at)
			requireFailure(t, test.above, codes.InvalidArgument, "TOO_LARGE")
			assert.Contains(t, status.Convert(test.above).Message(), test.message)
		})
	}
	for name, err := range map[string]error{
		"empty key":         putItem("", "v"),
		"empty key to get":  batchGet("a", ""),
		"empty batch":       write(true),
		"no mutation":       write(true, &kvdpb.Mutation{}),
		"reversed range":    scan("b", "a"),
		"empty key deleted": write(true, del("")),
	} {
		t.Run(name, func(t *testing.T) { requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST") })
	}
	_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k")}, Options: &kvdpb.RequestOptions{Durability: 4}})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

// Mutations that are not atomic fail each for itself.
func TestIndependentMutations(t *testing.T) {
	f := startWith(t, smallLimits, service.Options{})
	ctx := testContext(t)
	r, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("a", "1"), put("much too long", ""), {}, put("b", "2")}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, r.Meta.Version)
	var reasons []string
	for _, s := range r.Statuses {
		reasons = append(reasons, s.Reason)
	}
	assert.Equal(t, []string{"", "TOO_LARGE", "INVALID_REQUEST", ""}, reasons)
	assert.Equal(t, 2, f.store.Len())

	r, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{del("a"), del("b")}})
	require.NoError(t, err)
	assert.Empty(t, r.Statuses)
	assert.Zero(t, f.store.Len())
}

func TestABatchReadsAndWritesAtOneVersion(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	w, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("a", "1"), put("b", ""), del("c")}})
	require.NoError(t, err)
	r, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: [][]byte{[]byte("a"), []byte("b"), []byte("c")}})
	require.NoError(t, err)
	assert.Equal(t, w.Meta.Version, r.Meta.Version)
	assert.Equal(t, w.Meta.Version, r.Lookups[0].Item.Version)
	assert.Equal(t, []bool{true, true, false}, []bool{r.Lookups[0].Found, r.Lookups[1].Found, r.Lookups[2].Found})
	assert.Nil(t, r.Lookups[2].Item)
}

func TestMessagesAreBounded(t *testing.T) {
	f := startWith(t, smallLimits, service.Options{})
	ctx := testContext(t)
	fill := func(n int) error {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: make([]byte, n)}})
		return err
	}
	requireFailure(t, fill(64<<10), codes.InvalidArgument, "TOO_LARGE") // received, then refused
	requireFailure(t, fill(66<<10), codes.InvalidArgument, "TOO_LARGE") // refused by the length of the message
}

// Whichever limit a message exceeds, its client is told so by a reason.
func TestWhatIsTooLargeIsToldSo(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	ctx := testContext(t)
	item := func(n int) *kvdpb.Item { return &kvdpb.Item{Key: []byte("k"), Value: make([]byte, n)} }
	for _, n := range []int{5 << 20, 9 << 20} {
		_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: item(n)})
		requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
		_, err = f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{{Op: &kvdpb.Mutation_Put{Put: item(n)}}}})
		requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
	}
	const n = 9 << 20
	p := f.pipeline(t)
	require.NoError(t, p.stream.Send(&kvdpb.PipelineRequest{Frame: make([]byte, n)}))
	_, err := p.stream.Recv()
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
	scan, err := f.kv.Scan(ctx, &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: make([]byte, n)}})
	require.NoError(t, err)
	_, err = scan.Recv()
	requireFailure(t, err, codes.InvalidArgument, "TOO_LARGE")
}

func TestHeadersAreBounded(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	get := func(header int) error {
		ctx := metadata.AppendToOutgoingContext(testContext(t), "x", strings.Repeat("x", header))
		_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
		return err
	}
	require.Equal(t, codes.NotFound, status.Code(get(15<<10)))
	err := get(17 << 10)
	require.Error(t, err)
	require.NotEqual(t, codes.NotFound, status.Code(err))
}

// waiting is a store whose reads wait, so that calls stay in progress.
func waiting() (store *servicetest.Store, entered chan struct{}, leave func()) {
	store = servicetest.New(kv.DefaultLimits)
	entered, gate := make(chan struct{}, 1000), make(chan struct{})
	store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error {
		entered <- struct{}{}
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return store, entered, func() { close(gate) }
}

func TestStreamsAreBounded(t *testing.T) {
	store, entered, leave := waiting()
	// A connection may have as many as are free beside it: three of five, with two free.
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{Streams: 5}, protocols...) })
	ctx := testContext(t)
	answers := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
			answers <- err
		}()
		<-entered
	}
	_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
	info, retryAfter := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "streams", info.Metadata["cause"])
	assert.Positive(t, retryAfter)
	leave()
	for range 3 {
		assert.Equal(t, codes.NotFound, status.Code(<-answers))
	}
	testwait.Until(t, func() bool { return f.Stats().Streams == 0 })
	f.put(t, "k", "there is room again")
	assert.EqualValues(t, 1, f.Stats().Shed["streams"])
}

// Requests in progress are charged for their size; what exceeds the budget is
// refused, whether at the door or once its size is known.
func TestBytesAreBounded(t *testing.T) {
	store, entered, leave := waiting()
	const window = 1 << 20
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{BufferBytes: 10_000}, protocols...) })
	ctx := testContext(t)
	p := f.pipeline(t)
	p.send(getOp(1, strings.Repeat("x", 3000)))
	<-entered
	assert.Greater(t, f.Stats().Bytes, int64(3000))
	_, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: make([]byte, window-500)}})
	info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
	assert.Equal(t, "bytes", info.Metadata["cause"])
	p.send(putOp(2, "k", strings.Repeat("x", window-500)))
	r := p.result()
	assert.EqualValues(t, 2, r.Tag)
	assert.Equal(t, "OVERLOADED", r.Status.GetReason())
	leave()
	assert.EqualValues(t, 1, p.result().Tag)
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	p.send(putOp(3, "k", strings.Repeat("x", window-500)))
	assert.Nil(t, p.result().Status)
	p.close()

	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	_, err = f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: []byte("k"), Value: make([]byte, 2*window)}})
	require.NoError(t, err, "whatever is within the limits is served alone")
	f.put(t, "k", "small")
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
}

// A call without a deadline gets one, and so does one whose body never comes.
func TestTheDefaultDeadline(t *testing.T) {
	store, _, leave := waiting()
	defer leave()
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{Deadline: 20 * time.Millisecond}, protocols...)
	})
	_, err := f.kv.Get(context.Background(), &kvdpb.GetRequest{Key: []byte("k")})
	requireFailure(t, err, codes.DeadlineExceeded, "DEADLINE_EXCEEDED")

	// As a stream the client may leave out the message that these need.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, name := range []string{kvdpb.KVService_Get_FullMethodName, kvdpb.KVService_Scan_FullMethodName, "/grpc.health.v1.Health/Watch", "/grpc.health.v1.Health/Check"} {
		stream, err := f.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, name)
		require.NoError(t, err)
		code := status.Code(stream.RecvMsg(new(kvdpb.GetResponse)))
		require.Contains(t, []codes.Code{codes.DeadlineExceeded, codes.Canceled}, code, name)
	}
	testwait.Until(t, func() bool {
		stats := f.Stats()
		return stats.Streams == 0 && stats.Bytes == 0
	})
}

func TestStreamsOfAConnectionAreBounded(t *testing.T) {
	store, entered, leave := waiting()
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	answers := make(chan error, 257)
	for range 257 {
		go func() {
			_, err := f.kv.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
			answers <- err
		}()
	}
	for range 256 {
		<-entered
	}
	assert.EqualValues(t, 256, f.Stats().Streams, "the last one waits at the client")
	leave()
	for range 257 {
		assert.Equal(t, codes.NotFound, status.Code(<-answers))
	}
}
