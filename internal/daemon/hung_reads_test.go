package daemon

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// dial opens a connection of a plain gRPC client, which the test closes.
func (r *running) dial() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(r.t, err)
	return conn
}

var insideReads = regexp.MustCompile(`(?m)^kvd_admission_inside_ops\{kind="reads"\} (\d+)$`)

// inside returns how many operations are inside the gate for reads.
func (r *running) inside() int {
	r.t.Helper()
	_, page := r.page("/metrics")
	found := insideReads.FindStringSubmatch(page)
	require.NotNil(r.t, found)
	n, err := strconv.Atoi(found[1])
	require.NoError(r.t, err)
	return n
}

// TestReadsFromMemoryPassReadsThatHang fills the gate for reads with calls that wait for a
// disk that hangs. What a memtable or the block cache holds is answered all the same, by
// every protocol.
func TestReadsFromMemoryPassReadsThatHang(t *testing.T) {
	disk := vfs.NewMem()
	e, err := engine.Open("data", engine.Options{FS: disk, Partitions: 2})
	require.NoError(t, err)
	const keys = 4000 // so that the first and the last are in different blocks
	for i := range keys {
		_, err := e.Put(t.Context(), fmt.Appendf(nil, "%04d", i), make([]byte, 100), kv.WriteOptions{Durability: kv.DurabilityBuffered})
		require.NoError(t, err)
	}
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, e.CompactAll(t.Context())) // so that the files stay the same
	require.NoError(t, e.Close())

	fsys := faultfs.Wrap(disk, nil)
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	cached, fresh := []byte("0000"), []byte("fresh")
	require.NoError(t, r.client.Put(t.Context(), fresh, []byte("v")))
	_, err = r.client.Get(t.Context(), cached)
	require.NoError(t, err)

	b := newBlocked()
	fsys.SetInjector(b.on(faultfs.OnKind(faultfs.Read), faultfs.OnName("*.sst")))
	ctx, cancel := context.WithCancel(context.Background())
	const conns, calls = 10, 110
	var hung sync.WaitGroup
	for range conns {
		conn := r.dial()
		client := kvdpb.NewKVServiceClient(conn)
		var own sync.WaitGroup
		for range calls {
			own.Go(func() {
				request := new(kvdpb.BatchGetRequest)
				for i := range max(4, 2*runtime.GOMAXPROCS(0)) {
					request.Keys = append(request.Keys, fmt.Appendf(nil, "%04d", keys-1-i))
				}
				_, _ = client.BatchGet(ctx, request) // the last ones are refused
			})
		}
		hung.Go(func() {
			own.Wait()
			assert.NoError(t, conn.Close())
		})
	}
	defer func() {
		close(b.release)
		cancel()
		hung.Wait()
		assert.NoError(t, r.end())
	}()
	testwait.Until(t, func() bool { return r.inside() >= max(4096, 2048*runtime.GOMAXPROCS(0)) })

	conn := r.dial()
	defer func() { assert.NoError(t, conn.Close()) }()
	client, txn := kvdpb.NewKVServiceClient(conn), kvdpb.NewTxnServiceClient(conn)
	frames, err := kvd.Open(r.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, frames.Close()) }()
	snapshot, err := txn.BeginSnapshot(t.Context(), &kvdpb.BeginSnapshotRequest{})
	require.NoError(t, err)
	for name, read := range map[string]func(key []byte) error{
		"Get": func(key []byte) error {
			_, err := client.Get(t.Context(), &kvdpb.GetRequest{Key: key})
			return err
		},
		"Get at a snapshot": func(key []byte) error {
			_, err := client.Get(t.Context(), &kvdpb.GetRequest{Key: key, AtVersion: snapshot.Version, Epoch: snapshot.Epoch})
			return err
		},
		"BatchGet": func(key []byte) error {
			_, err := client.BatchGet(t.Context(), &kvdpb.BatchGetRequest{Keys: [][]byte{key, cached}})
			return err
		},
		"Pipeline": func(key []byte) error {
			stream, err := client.Pipeline(t.Context())
			require.NoError(t, err)
			require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{
				{Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: key}}},
			}}))
			answer, err := stream.Recv()
			require.NoError(t, err)
			require.NoError(t, stream.CloseSend())
			if s := answer.Results[0].Status; s != nil {
				return fmt.Errorf("%s: %s", s.Reason, s.Message)
			}
			return nil
		},
		"raw Get": func(key []byte) error {
			_, err := frames.Get(t.Context(), key)
			return err
		},
		"raw GetMany": func(key []byte) error {
			_, err := frames.GetMany(t.Context(), [][]byte{key, cached})
			return err
		},
	} {
		assert.NoError(t, read(fresh), "%s from a memtable", name)
		assert.NoError(t, read(cached), "%s from the cache", name)
	}
	assert.GreaterOrEqual(t, r.inside(), 4096, "the gate was full all the time")
}
