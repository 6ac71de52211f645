package kvd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// slowLink passes connections on. From hold on it keeps what clients send by those that there are, and
// delivers it when it is told to, also if the client has given the connection up.
type slowLink struct {
	dial func(context.Context, string) (net.Conn, error)

	mu      sync.Mutex
	links   []*link
	running sync.WaitGroup
}

type link struct {
	client, near, server net.Conn // near is the other end of client
	kept                 atomic.Pointer[delay]
}

// delay is a time in which a link is slow.
type delay struct {
	until   []byte        // what a client sends in it
	sent    chan struct{} // closed when the client has sent that
	once    sync.Once
	deliver chan struct{} // closed when it is over
}

func (s *slowLink) dialer(ctx context.Context, address string) (net.Conn, error) {
	server, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	front := memlisten.Listen(1 << 16)
	defer func() { _ = front.Close() }()
	accepted := make(chan net.Conn, 1)
	s.running.Go(func() {
		if near, err := front.Accept(); err == nil {
			accepted <- near
		}
		close(accepted)
	})
	client, err := front.DialContext(ctx)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	l := &link{client: client, near: <-accepted, server: server}
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	s.running.Go(l.send)
	s.running.Go(func() {
		_, _ = io.Copy(l.near, l.server)
		_ = l.near.Close()
	})
	return client, nil
}

// send passes on what the client sends. The connection to the server stays open.
func (l *link) send() {
	var pending []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.near.Read(buffer)
		pending = append(pending, buffer[:n]...)
		d := l.kept.Load()
		switch {
		case d == nil:
			_, _ = l.server.Write(pending)
			pending = pending[:0]
		case bytes.Contains(pending, d.until):
			d.once.Do(func() { close(d.sent) })
		}
		if err != nil {
			if d != nil {
				<-d.deliver
				_, _ = l.server.Write(pending)
			}
			return
		}
	}
}

// hold makes the present connections slow.
func (s *slowLink) hold(until string) *delay {
	d := &delay{until: []byte(until), sent: make(chan struct{}), deliver: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		l.kept.Store(d)
	}
	return d
}

// cut breaks the ends that clients have of the slow connections.
func (s *slowLink) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.kept.Load() != nil {
			_ = l.client.Close()
		}
	}
}

// close ends what is left of all connections.
func (s *slowLink) close() {
	s.mu.Lock()
	for _, l := range s.links {
		_, _ = l.client.Close(), l.server.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// countedStore counts the writes that have ended.
type countedStore struct {
	service.Store
	writes atomic.Int64
}

func (s *countedStore) Write(ctx context.Context, writes []*kv.Write) error {
	defer s.writes.Add(1)
	return s.Store.Write(ctx, writes)
}

func (s *countedStore) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	defer s.writes.Add(1)
	return s.Store.Apply(ctx, b, o)
}

// The network delivers the first attempt at a write so late that the server has forgotten the id of the
// retry, which was applied. It does not undo what was written since.
func TestALateFirstAttemptDoesNothing(t *testing.T) {
	ctx := testwait.Context(t)
	e, err := engine.Open("data", engine.Options{FS: vfs.NewMem(), Partitions: 1, MemtableBytes: 32 << 20, CacheBytes: 4 << 20})
	require.NoError(t, err)
	store := &countedStore{Store: daemon.Store(e)}
	s := servertest.ServeStore(t, store, service.Options{})
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	writes := make(map[string]func(value string) error) // by key
	var late []*delay
	for transport, opts := range transports {
		slow := &slowLink{dial: s.Dial}
		db, err := Open("memory", append(opts, WithConns(1), WithDialer(slow.dialer), WithTimeout(testwait.Left()))...)
		require.NoError(t, err)
		t.Cleanup(slow.close)
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		put(t, db, "before", "")
		for key, write := range map[string]func(key, value string) error{
			"put by " + transport: func(key, value string) error { return db.Put(ctx, []byte(key), []byte(value)) },
			"apply by " + transport: func(key, value string) error {
				_, err := db.Apply(ctx, new(Batch).Put([]byte(key), []byte(value)))
				return err
			},
		} {
			writes[key] = func(value string) error { return write(key, value) }
			require.NoError(t, writes[key]("older"))
			d := slow.hold("stale value of " + key)
			late = append(late, d)
			answer := make(chan error, 1)
			go func() { answer <- writes[key]("stale value of " + key) }()
			<-d.sent
			slow.cut()
			require.NoError(t, <-answer, "by its second attempt")
		}
	}
	forget(t, e)
	for _, write := range writes {
		require.NoError(t, write("new"))
	}
	ended := store.writes.Load()
	for _, d := range late {
		close(d.deliver)
	}
	testwait.Until(t, func() bool { return store.writes.Load() == ended+int64(len(late)) })
	db := clusterOf(s).open(t)
	for key := range writes {
		value, err := db.Get(ctx, []byte(key))
		require.NoError(t, err)
		assert.Equal(t, "new", string(value), key)
	}
}

// forget makes a store forget the request ids of all writes so far.
func forget(t *testing.T, e *engine.Engine) {
	writes := make([]*kv.Write, 512)
	for n := 0; n < 1<<18; n += len(writes) {
		for i := range writes {
			writes[i] = &kv.Write{
				Op:        kv.Op{Kind: kv.KindPut, Key: fmt.Appendf(nil, "other %d", i)},
				RequestID: kv.RequestID{ClientID: 1, Sequence: uint64(n + i + 1)}, Durability: kv.DurabilityMemory,
			}
		}
		require.NoError(t, e.Write(t.Context(), writes))
		require.NoError(t, writes[0].Err)
	}
}

// A write that the server takes for a late attempt, because other writes of the client have overtaken
// it, is sent under another request id: the client knows that nothing was done.
func TestAWriteThatWasTakenForALateOne(t *testing.T) { everyTransport(t, takenForALateOne) }

func takenForALateOne(t *testing.T, opts ...Option) {
	late := servertest.WithReason(t, status.New(codes.Aborted, "too late"), kvdpb.ReasonAttemptTooLate, kvdpb.MetadataVersion, "50")
	var log servertest.TryLog
	db := openOn(t, servertest.Losing(&log, 0, refusingFirst(late)), opts...)
	for what, write := range writesOf(db) {
		require.NoError(t, write(t.Context()), what)
		seen := log.Take()
		require.Len(t, seen, 2, what)
		assert.Equal(t, seen[0].ClientId, seen[1].ClientId, what)
		assert.Greater(t, seen[1].Sequence, seen[0].Sequence, what)
		assert.False(t, seen[1].Retried, what)
		if what != "put" && what != "delete" { // in a frame the version is that of a retry
			assert.EqualValues(t, 50, seen[1].KnownVersion, what)
		}
	}
}

// Once an attempt was lost, no new id is safe.
func TestALostWriteKeepsItsID(t *testing.T) { everyTransport(t, aLostWriteKeepsItsID) }

func aLostWriteKeepsItsID(t *testing.T, opts ...Option) {
	late := servertest.WithReason(t, status.New(codes.Aborted, "too late"), kvdpb.ReasonAttemptTooLate)
	var log servertest.TryLog
	db := openOn(t, servertest.Losing(&log, 1, func(any) (any, error) { return nil, late }), opts...)
	for what, write := range writesOf(db) {
		require.ErrorIs(t, write(t.Context()), ErrUncertain, what)
		seen := log.Take()
		require.Len(t, seen, 2, what)
		assert.Equal(t, seen[0].Sequence, seen[1].Sequence, what)
		assert.True(t, seen[1].Retried, what)
	}
}
