package service_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// fill writes n keys k00000, k00001 ... with values of some bytes.
func (f *fixture) fill(t testing.TB, n, valueBytes int) {
	t.Helper()
	request := &kvdpb.WriteRequest{}
	for i := range n {
		request.Mutations = append(request.Mutations, put(fmt.Sprintf("k%05d", i), strings.Repeat("v", valueBytes)))
	}
	_, err := f.kv.Write(testContext(t), request)
	require.NoError(t, err)
}

// chunks runs a scan and returns what it sent.
func (f *fixture) chunks(t testing.TB, r *kvdpb.ScanRequest) ([]*kvdpb.ScanResponse, error) {
	t.Helper()
	stream, err := f.kv.Scan(testContext(t), r)
	require.NoError(t, err)
	var chunks []*kvdpb.ScanResponse
	for {
		c, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return chunks, nil
		}
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, c)
	}
}

func keysOf(chunks ...*kvdpb.ScanResponse) (keys []string) {
	for _, c := range chunks {
		for _, item := range c.Items {
			keys = append(keys, string(item.Key))
		}
	}
	return keys
}

func wantKeys(from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("k%05d", i))
	}
	return keys
}

func TestScanSendsChunks(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.fill(t, 2500, 10)
	for name, test := range map[string]struct {
		request *kvdpb.ScanRequest
		sizes   []int
		keys    []string
		more    bool // the last chunk has a token
	}{
		"by keys":    {request: &kvdpb.ScanRequest{}, sizes: []int{1000, 1000, 500}, keys: wantKeys(0, 2500)},
		"by bytes":   {request: &kvdpb.ScanRequest{ChunkBytes: 16 * 700, Limit: 1500}, sizes: []int{700, 700, 100}, keys: wantKeys(0, 1500), more: true},
		"keys only":  {request: &kvdpb.ScanRequest{ChunkBytes: 6 * 600, KeysOnly: true, Limit: 1000}, sizes: []int{600, 400}, keys: wantKeys(0, 1000), more: true},
		"one a time": {request: &kvdpb.ScanRequest{ChunkBytes: 1, Limit: 3}, sizes: []int{1, 1, 1}, keys: wantKeys(0, 3), more: true},
		"range": {
			request: &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte("k00007"), End: []byte("k00009")}},
			sizes:   []int{2}, keys: wantKeys(7, 9),
		},
		"nothing":                {request: &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte("z")}}, sizes: []int{0}},
		"limit beyond the range": {request: &kvdpb.ScanRequest{Range: &kvdpb.Range{Start: []byte("k02490")}, Limit: 20}, sizes: []int{10}, keys: wantKeys(2490, 2500)},
	} {
		t.Run(name, func(t *testing.T) {
			chunks, err := f.chunks(t, test.request)
			require.NoError(t, err)
			var sizes []int
			for i, c := range chunks {
				sizes = append(sizes, len(c.Items))
				assert.EqualValues(t, 2500, c.Meta.Version)
				assert.Equal(t, i < len(chunks)-1 || test.more, c.NextPageToken != "")
				for _, item := range c.Items {
					assert.Equal(t, test.request.KeysOnly, len(item.Value) == 0)
					assert.NotZero(t, item.Version)
				}
			}
			assert.Equal(t, test.sizes, sizes)
			assert.Equal(t, test.keys, keysOf(chunks...))
		})
	}
}

// A chunk stays below a mebibyte whatever the client asks for, but for a single
// item that is larger.
func TestAChunkIsBounded(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.fill(t, 5, 300<<10)
	f.put(t, "k00002", strings.Repeat("v", 3<<20))
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{ChunkBytes: 1 << 30})
	require.NoError(t, err)
	require.Len(t, chunks, 3)
	assert.Equal(t, wantKeys(0, 2), keysOf(chunks[0]))
	assert.Equal(t, wantKeys(2, 3), keysOf(chunks[1]))
	assert.Len(t, chunks[1].Items[0].Value, 3<<20)
	assert.Equal(t, wantKeys(3, 5), keysOf(chunks[2]))
}

// A scan goes on after any chunk of an earlier one.
func TestScanResumesAtAToken(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.fill(t, 50, 1)
	r := &kvdpb.Range{Start: []byte("k00010"), End: []byte("k00040")}
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{Range: r, ChunkBytes: 7 * 8})
	require.NoError(t, err)
	require.Len(t, chunks, 4)
	for i, c := range chunks[:3] {
		rest, err := f.chunks(t, &kvdpb.ScanRequest{Range: r, PageToken: c.NextPageToken})
		require.NoError(t, err)
		assert.Equal(t, wantKeys(10+8*(i+1), 40), keysOf(rest...))
	}
	_, err = f.chunks(t, &kvdpb.ScanRequest{PageToken: chunks[0].NextPageToken})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_PAGE_TOKEN")
	_, err = f.chunks(t, &kvdpb.ScanRequest{Range: r, PageToken: "nonsense"})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_PAGE_TOKEN")
}

// Backward a scan sends the same items in exactly the other order, and goes on
// before any chunk.
func TestScanBackward(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.fill(t, 50, 1)
	reversed := func(from, to int) []string {
		keys := wantKeys(from, to)
		slices.Reverse(keys)
		return keys
	}
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{Reverse: true})
	require.NoError(t, err)
	assert.Equal(t, reversed(0, 50), keysOf(chunks...))
	assert.Empty(t, chunks[0].NextPageToken)
	chunks, err = f.chunks(t, &kvdpb.ScanRequest{Reverse: true, Limit: 3})
	require.NoError(t, err)
	assert.Equal(t, reversed(47, 50), keysOf(chunks...), "a limit takes the last ones")

	r := &kvdpb.Range{Start: []byte("k00010"), End: []byte("k00040")}
	chunks, err = f.chunks(t, &kvdpb.ScanRequest{Range: r, Reverse: true, ChunkBytes: 7 * 8})
	require.NoError(t, err)
	require.Len(t, chunks, 4)
	for i, c := range chunks[:3] {
		rest, err := f.chunks(t, &kvdpb.ScanRequest{Range: r, Reverse: true, PageToken: c.NextPageToken})
		require.NoError(t, err)
		assert.Equal(t, reversed(10, 40-8*(i+1)), keysOf(rest...))
	}
	_, err = f.chunks(t, &kvdpb.ScanRequest{Range: r, PageToken: chunks[0].NextPageToken})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_PAGE_TOKEN")
	chunks, err = f.chunks(t, &kvdpb.ScanRequest{Range: r, Limit: 1})
	require.NoError(t, err)
	_, err = f.chunks(t, &kvdpb.ScanRequest{Range: r, Reverse: true, PageToken: chunks[0].NextPageToken})
	requireFailure(t, err, codes.InvalidArgument, "INVALID_PAGE_TOKEN")
}

// The last item of a range, in each direction, is followed by an empty scan.
func TestAPageTokenOfTheLastItem(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	f.fill(t, 3, 1)
	for _, reverse := range []bool{false, true} {
		for _, r := range []*kvdpb.Range{{}, {Start: []byte("k00000"), End: []byte("k00003")}} {
			chunks, err := f.chunks(t, &kvdpb.ScanRequest{Range: r, Reverse: reverse, Limit: 3})
			require.NoError(t, err)
			require.Len(t, chunks, 1)
			rest, err := f.chunks(t, &kvdpb.ScanRequest{Range: r, Reverse: reverse, PageToken: chunks[0].NextPageToken})
			require.NoError(t, err)
			assert.Empty(t, keysOf(rest...))
		}
	}
}

func TestAnErrorEndsAScan(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnScan = func(_ context.Context, item *kv.Item) error {
		if string(item.Key) == "k00003" {
			return kv.Corruptf("file", 0, "bad checksum")
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	f.fill(t, 5, 1)
	chunks, err := f.chunks(t, &kvdpb.ScanRequest{ChunkBytes: 1})
	requireFailure(t, err, codes.DataLoss, "CORRUPTION")
	assert.Equal(t, wantKeys(0, 2), keysOf(chunks...), "the item before the damage stood in the chunk that was lost")
}

// A client that takes nothing is cut off: a scan holds a version of the store.
func TestAScanThatStandsStillIsCutOff(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Deadline: 50 * time.Millisecond})
	f.fill(t, 4000, 2000)
	stream, err := f.kv.Scan(testContext(t), &kvdpb.ScanRequest{})
	require.NoError(t, err)
	testwait.Until(t, func() bool { return f.requests("Scan", codes.DeadlineExceeded) == 1 })
	for err == nil {
		_, err = stream.Recv()
	}
	assert.False(t, errors.Is(err, io.EOF), "%v", err)
}
