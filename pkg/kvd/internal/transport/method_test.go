package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// agedConn lowers the version of frames that a client asks for, so that a server answers as one
// does that has no newer version.
type agedConn struct {
	net.Conn
	newest byte
}

func (c *agedConn) Write(p []byte) (int, error) {
	if len(p) == frame.PreambleBytes {
		if asked := frame.Version([frame.PreambleBytes]byte(p)); asked > c.newest {
			p = []byte(frame.PreambleOf(c.newest))
		}
	}
	return c.Conn.Write(p)
}

// aged returns a dialer of a server that has no version of frames above newest.
func aged(dial dialer, newest byte) dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return &agedConn{conn, newest}, nil
	}
}

// authorityOf returns an authority that knows one client, and the client's token.
func authorityOf(t *testing.T) (a *auth.Authority, token string) {
	t.Helper()
	token, id, hash := auth.NewToken()
	all := []string{""}
	text, err := auth.Encode([]auth.Entry{{Identity: auth.Identity{Name: "client", TokenID: id, Read: all, Write: all}, Hash: hash}})
	require.NoError(t, err)
	fsys := vfs.NewMem()
	require.NoError(t, vfs.WriteAtomic(fsys, "tokens", text))
	a, err = auth.Open(fsys, "tokens", func(err error) { assert.NoError(t, err) })
	require.NoError(t, err)
	return a, token
}

// served counts the requests of a method that succeeded.
func served(s *servertest.Service, method string) (n uint64) {
	stats := s.Server.Stats()
	for _, r := range stats.Requests {
		if r.Method == method && r.Code == service.OK {
			n += r.Count
		}
	}
	return n
}

func putAll(keys ...string) (writes []backend.Mutation) {
	for _, key := range keys {
		writes = append(writes, backend.Mutation{Kind: backend.Put, Key: []byte(key), Value: []byte("v")})
	}
	return writes
}

func guardOf(key string, c backend.Condition) backend.Guard {
	return backend.Guard{Key: []byte(key), Condition: c}
}

// openUntilClosed is openBy for a test that closes the network itself.
func openUntilClosed(t *testing.T, dial dialer, o Options) caller {
	t.Helper()
	o.Dialer = dial
	n, err := Open("memory", withDefaults(o))
	require.NoError(t, err)
	return caller{n}
}

// callAll makes each call that has a form in frames.
func (c caller) callAll(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Apply(ctx, putAll("a", "b"), backend.WriteOptions{})
	require.NoError(t, err)
	s, err := c.BeginSnapshot(ctx, time.Minute, nil)
	require.NoError(t, err)
	granted, err := c.KeepSnapshot(ctx, s.ID, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, s.Lease, granted)
	at := backend.ReadVersion{Version: s.Version, Epoch: s.Epoch}
	v, err := c.Get(ctx, []byte("a"), at, nil)
	require.NoError(t, err)
	assert.Equal(t, "v", string(v.Bytes))
	version, err := c.Commit(ctx, &backend.Transaction{At: at, Keys: [][]byte{[]byte("a")}, Writes: putAll("a")}, backend.WriteOptions{})
	require.NoError(t, err)
	done, err := c.Execute(ctx, &backend.Execution{
		Guards: []backend.Guard{guardOf("a", backend.Condition{Kind: backend.VersionEquals, Version: version})}, Then: putAll("c"),
	}, backend.WriteOptions{})
	require.NoError(t, err)
	assert.True(t, done.Succeeded)
	assert.Greater(t, done.Version, version)
	c.ReleaseSnapshot(s.ID)
}

var methodsInFrames = []string{"Write", "Commit", "Execute", "BeginSnapshot", "KeepSnapshot", "ReleaseSnapshot"}

// A client and a server speak the newest version of frames that both have, with a token or without.
// Calls travel in frames from version 3 on, and by gRPC before.
func TestVersionsOfFrames(t *testing.T) {
	authority, token := authorityOf(t)
	for newest := byte(frame.VersionPlain); newest <= frame.VersionIncarnation; newest++ {
		for _, signsIn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, signs in: %t", newest, signsIn), func(t *testing.T) {
				var server service.Options
				client := Options{Conns: 1}
				if signsIn {
					client.Token = func() (string, error) { return token, nil }
					if newest >= frame.VersionSignIn { // an older server knows no tokens
						server.Auth = authority
					}
				}
				s := servertest.Serve(t, nil, server)
				db := openUntilClosed(t, aged(s.Dial, newest), client)
				db.callAll(t)
				assert.IsType(t, &rawTransport{}, db.transport())
				assert.EqualValues(t, 1, s.Server.Stats().RawAccepted)
				require.NoError(t, db.Close())
				for _, m := range methodsInFrames {
					want := []uint64{1, 0}
					if newest >= frame.VersionCalls {
						want = []uint64{0, 1}
					}
					assert.Equal(t, want, []uint64{served(s, m), served(s, "Pipeline."+m)}, m)
				}
				assert.Zero(t, s.Store.SnapshotCount())
			})
		}
	}
}

// Without frames, or with frames in gRPC, calls are gRPC calls, also if no connection has been opened.
func TestCallsWithoutFrames(t *testing.T) {
	for name, o := range map[string]Options{"frames in gRPC": {GRPCOnly: true}, "no frames": {Unframed: true}} {
		t.Run(name, func(t *testing.T) {
			s := servertest.Serve(t, nil, service.Options{})
			openBy(t, s.Dial, o).callAll(t)
			assert.EqualValues(t, 1, served(s, "Commit"))
		})
	}
	t.Run("a server of gRPC only", func(t *testing.T) {
		dial, _ := grpcOnlyServer(t)
		db := openBy(t, dial, Options{Conns: 1})
		version, err := db.Apply(t.Context(), putAll("a"), backend.WriteOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 9, version)
		assert.IsType(t, &streamTransport{}, db.transport())
		_, err = db.Apply(t.Context(), putAll("a"), backend.WriteOptions{})
		require.NoError(t, err)
	})
}

// A call that is larger than a frame may be is a gRPC call.
func TestALargeCallIsAGRPCCall(t *testing.T) {
	s := servertest.Serve(t, nil, service.Options{})
	db := openBy(t, s.Dial, Options{Frames: Limits{Bytes: 1000}})
	_, err := db.Apply(t.Context(), putAll("a", strings.Repeat("b", 1000)), backend.WriteOptions{})
	require.NoError(t, err)
	_, err = db.Apply(t.Context(), putAll("a", "b"), backend.WriteOptions{})
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 1}, []uint64{served(s, "Write"), served(s, "Pipeline.Write")})
}

// A call fails alike in a frame and by gRPC.
func TestCallsFailAlikeInFramesAndByGRPC(t *testing.T) {
	past := backend.ReadVersion{Version: 1}
	commit := func(txn backend.Transaction) func(context.Context, caller) error {
		return func(ctx context.Context, db caller) error {
			_, err := db.Commit(ctx, &txn, backend.WriteOptions{})
			return err
		}
	}
	apply := func(o backend.WriteOptions, writes ...backend.Mutation) func(context.Context, caller) error {
		return func(ctx context.Context, db caller) error {
			_, err := db.Apply(ctx, writes, o)
			return err
		}
	}
	conditional := putAll("a")
	conditional[0].Condition = &backend.Condition{Kind: backend.VersionEquals, Version: 77}
	calls := map[string]func(context.Context, caller) error{
		"conflict":          commit(backend.Transaction{At: past, Keys: [][]byte{[]byte("a")}, Writes: putAll("b")}),
		"conflict of range": commit(backend.Transaction{At: past, Ranges: []backend.Range{{}}, Writes: putAll("b")}),
		"another epoch":     commit(backend.Transaction{At: backend.ReadVersion{Version: 1, Epoch: 12345}, Keys: [][]byte{[]byte("a")}, Writes: putAll("b")}),
		"no such version":   commit(backend.Transaction{At: backend.ReadVersion{Version: 1 << 63}, Writes: putAll("b")}),
		"condition":         apply(backend.WriteOptions{}, conditional...),
		"no writes":         apply(backend.WriteOptions{}),
		"no key":            apply(backend.WriteOptions{}, putAll("")...),
		"long key":          apply(backend.WriteOptions{}, putAll(strings.Repeat("k", 5000))...),
		"no such level":     apply(backend.WriteOptions{Durability: backend.Sync}, backend.Mutation{Kind: 99, Key: []byte("a")}),
		"no guards": func(ctx context.Context, db caller) error {
			_, err := db.Execute(ctx, &backend.Execution{Guards: []backend.Guard{guardOf("", backend.Condition{})}}, backend.WriteOptions{})
			return err
		},
		"no such snapshot": func(ctx context.Context, db caller) error {
			_, err := db.KeepSnapshot(ctx, 99, 0)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			var failures []*backend.Failure
			for _, o := range []Options{{}, {GRPCOnly: true}} {
				s := servertest.Serve(t, nil, service.Options{})
				db := openBy(t, s.Dial, o)
				db.mustPut(t, "a", "1", "a", "2")
				err := call(t.Context(), db)
				failure, ok := errors.AsType[*backend.Failure](err)
				require.True(t, ok, err)
				failures = append(failures, failure)
			}
			assert.Equal(t, failures[1], failures[0])
		})
	}
}

// A call that takes long delays neither those of its frame nor those that follow.
func TestACallThatTakesLongDelaysNoOther(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	store.OnApply = func(ctx context.Context, b *kv.WriteBatch) error {
		if strings.HasPrefix(string(b.Ops()[0].Key), "slow") {
			entered <- struct{}{}
			<-leave
		}
		return nil
	}
	s := servertest.Serve(t, store, service.Options{})
	db := openBy(t, s.Dial, Options{Conns: 1, Window: 1})
	apply := func(key string) error {
		_, err := db.Apply(context.Background(), putAll(key), backend.WriteOptions{})
		return err
	}
	var slow sync.WaitGroup
	for i := range 3 {
		slow.Go(func() { assert.NoError(t, apply(fmt.Sprintf("slow%d", i))) })
		<-entered
	}
	for range 10 {
		require.NoError(t, apply("quick"))
	}
	close(leave)
	slow.Wait()
}

// Calls leave room among the frames that a server serves at a time, so that a read waits neither for
// snapshots nor for writes.
func TestReadsDoNotWaitForCalls(t *testing.T) {
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	s := &servertest.Scripted{Unary: func(request any) (any, error) {
		entered <- struct{}{}
		<-leave
		if _, ok := request.(*kvdpb.BeginSnapshotRequest); ok {
			return &kvdpb.BeginSnapshotResponse{SnapshotId: 1, Version: 1, LeaseMs: 1000}, nil
		}
		return servertest.Succeed(request)
	}}
	one := Limits{Ops: 1}
	db := openBy(t, s.Dialer(t), Options{Conns: 1, Frames: one, SyncedFrames: one, Window: 8})
	db.mustPut(t, "k", "v")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			_, err := db.BeginSnapshot(t.Context(), 0, nil)
			assert.NoError(t, err)
		})
		all.Go(func() {
			_, err := db.Apply(t.Context(), putAll("a"), backend.WriteOptions{})
			assert.NoError(t, err)
		})
	}
	for range maxWrites {
		<-entered
	}
	testwait.Until(t, func() bool { return db.waiting() == 12-maxWrites })
	value, err := db.get(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, "v", string(value))
	assert.Empty(t, entered)
	close(leave)
	all.Wait()
}

// A snapshot is released by the next frame about snapshots; without one, soon; and when the client
// is closed.
func TestReleasesTravelWithTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Serve(t, nil, service.Options{})
		db := openUntilClosed(t, s.Dial, Options{Conns: 1})
		db.mustPut(t, "k", "v")
		frames := s.Server.Stats().RawFrames
		for range 10 {
			begun, err := db.BeginSnapshot(t.Context(), time.Minute, nil)
			require.NoError(t, err)
			db.ReleaseSnapshot(begun.ID)
			assert.LessOrEqual(t, s.Store.SnapshotCount(), 1)
		}
		assert.Equal(t, frames+10, s.Server.Stats().RawFrames)
		assert.Equal(t, 1, s.Store.SnapshotCount())
		time.Sleep(3 * maxTick)
		assert.Equal(t, frames+11, s.Server.Stats().RawFrames)
		assert.Zero(t, s.Store.SnapshotCount())
		begun, err := db.BeginSnapshot(t.Context(), time.Minute, nil)
		require.NoError(t, err)
		db.ReleaseSnapshot(begun.ID)
		require.NoError(t, db.Close())
		assert.Zero(t, s.Store.SnapshotCount())
	})
}

// What a client keeps for its next call can be used in another bubble of synctest, and outside.
func TestCallsInSeveralBubbles(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			openBy(t, servertest.Serve(t, nil, service.Options{}).Dial, Options{Conns: 1}).callAll(t)
		})
	}
	openBy(t, servertest.Serve(t, nil, service.Options{}).Dial, Options{Conns: 1}).callAll(t)
}

// A release that is not answered does not keep the client from closing.
func TestCloseDoesNotWaitForAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Serve(t, nil, service.Options{})
		var hung atomic.Bool
		db := openUntilClosed(t, func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := s.Dial(ctx, address)
			return hungConn{conn, &hung}, err
		}, Options{Conns: 1})
		db.mustPut(t, "k", "v")
		begun, err := db.BeginSnapshot(t.Context(), time.Minute, nil)
		require.NoError(t, err)
		hung.Store(true)
		db.ReleaseSnapshot(begun.ID)
		closed := time.Now()
		require.NoError(t, db.Close())
		assert.Equal(t, releaseTimeout, time.Since(closed))
	})
}

// hungConn swallows what is sent once its server hangs.
type hungConn struct {
	net.Conn
	hung *atomic.Bool
}

func (c hungConn) Write(p []byte) (int, error) {
	if c.hung.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
