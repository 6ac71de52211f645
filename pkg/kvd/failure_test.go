package kvd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// What the store says arrives as the right sentinel, with what belongs to it, and its text
// says nothing twice.
func TestErrorsCrossTheWire(t *testing.T) {
	for _, test := range []struct {
		stored error
		read   error
		write  error
	}{
		{kv.ErrInvalidArgument, ErrInvalid, ErrInvalid},
		{kv.ErrTooLarge, ErrTooLarge, ErrTooLarge},
		{kv.ErrOverloaded, ErrOverloaded, ErrOverloaded},
		{kv.ErrReadOnly, ErrReadOnly, ErrReadOnly},
		{kv.ErrFailed, ErrUnavailable, ErrUnavailable},
		{kv.ErrClosed, ErrUnavailable, ErrUnavailable},
		{kv.ErrVersionGone, ErrVersionGone, ErrVersionGone},
		{kv.Corruptf("f", 0, "x"), ErrCorrupt, ErrCorrupt},
		{errors.New("a bug"), ErrInternal, ErrUncertain},
		{fmt.Errorf("%w: %w", kv.ErrUncertain, kv.ErrFailed), ErrUncertain, ErrUncertain},
	} {
		for way, o := range map[string]Option{
			"raw": func(*config) {}, "gRPC": WithoutRawFrames(), "alone": WithBatching(Batching{Disabled: true}),
		} {
			t.Run(fmt.Sprintf("%v, %s", test.stored, way), func(t *testing.T) {
				t.Parallel() // some wait between their tries
				store := servicetest.New(kv.DefaultLimits)
				store.OnLookup = func(context.Context, []*kv.Lookup) error { return test.stored }
				store.OnWrite = func(context.Context, []*kv.Write) error { return test.stored }
				db := serve(t, store, service.Options{}).open(t, o)
				_, err := db.Get(context.Background(), []byte("k"))
				assert.ErrorIs(t, err, test.read)
				longest := slices.MaxFunc(strings.Fields(test.read.Error()), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
				assert.Equal(t, 1, strings.Count(err.Error(), longest), "%v", err)
				err = db.Put(context.Background(), []byte("k"), nil)
				assert.ErrorIs(t, err, test.write)
				assert.Equal(t, errors.Is(test.write, ErrUncertain), errors.Is(err, ErrUncertain))
				e, ok := errors.AsType[*Error](err)
				require.True(t, ok)
				assert.Equal(t, "put", e.Op)
				assert.NotEmpty(t, e.Reason)
			})
		}
	}
}

// A call that was shed is tried again, not sooner than the server asked for.
func TestOverloadIsTriedAgainWhenTheServerSaid(t *testing.T) { everyTransport(t, overloadIsTriedAgain) }

func overloadIsTriedAgain(t *testing.T, opts ...Option) {
	var calls, retryAfter atomic.Int64
	retryAfter.Store(int64(60 * time.Millisecond))
	store := servicetest.New(kv.DefaultLimits)
	store.OnWrite = func(context.Context, []*kv.Write) error {
		if calls.Add(1) < 3 {
			return &kv.OverloadError{Reason: "inbox_full", RetryAfter: time.Duration(retryAfter.Load())}
		}
		return nil
	}
	db := serve(t, store, service.Options{}).open(t, opts...)
	begun := time.Now()
	require.NoError(t, db.Put(context.Background(), []byte("k"), nil))
	assert.GreaterOrEqual(t, time.Since(begun), 120*time.Millisecond)
	assert.EqualValues(t, 3, calls.Load())

	calls.Store(-1000)
	retryAfter.Store(int64(time.Hour))
	err := db.Put(testwait.Context(t), []byte("k"), nil)
	require.ErrorIs(t, err, ErrOverloaded, "there was no time to wait")
	e, _ := errors.AsType[*Error](err)
	assert.Equal(t, time.Hour, e.RetryAfter)
	assert.Equal(t, "OVERLOADED", e.Reason)
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	refused := errors.New("refused")
	db, err := Open("nowhere", WithDialer(func(context.Context, string) (net.Conn, error) { return nil, refused }))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	ctx := context.Background()
	errs := make(chan error)
	calls := []func() error{
		func() error { _, err := db.Get(ctx, []byte("k")); return err },
		func() error { return db.Put(ctx, []byte("k"), nil) },
		func() error { return db.Put(ctx, []byte("k"), make([]byte, 100<<10)) },
		func() error { return db.Ping(ctx) },
		func() error {
			for _, err := range db.Scan(ctx, All()) {
				return err
			}
			return nil
		},
	}
	for _, call := range calls {
		go func() { errs <- call() }()
	}
	for range calls {
		err := <-errs
		e, ok := errors.AsType[*Error](err)
		require.True(t, ok)
		assert.ErrorIs(t, err, ErrUnavailable)
		assert.NotErrorIs(t, err, ErrUncertain, "%s was never sent", e.Op)
		assert.Equal(t, tries, e.Attempts)
	}
}

// A call without a deadline gets the client's.
func TestTheDefaultTimeout(t *testing.T) { everyTransport(t, theDefaultTimeout) }

func theDefaultTimeout(t *testing.T, opts ...Option) {
	for _, alone := range []bool{false, true} {
		c, _, leave := held(t)
		defer leave()
		testwait.Doubling(t, 20*time.Millisecond, func(d time.Duration) (sent bool) {
			db := c.open(t, append(opts, WithTimeout(d), WithBatching(Batching{Disabled: alone}))...)
			_, err := db.Get(context.Background(), []byte("k"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			err = db.Put(context.Background(), []byte("k"), nil)
			require.ErrorIs(t, err, context.DeadlineExceeded, "whether client or server see first that time ran out")
			return errors.Is(err, ErrUncertain)
		})
	}
}

func TestCloseWaitsForCallsInFlight(t *testing.T) { everyTransport(t, closeWaitsForCallsInFlight) }

func closeWaitsForCallsInFlight(t *testing.T, opts ...Option) {
	c, entered, leave := held(t)
	db := c.open(t, opts...)
	answer, closed := make(chan error, 1), make(chan error, 1)
	go func() { answer <- db.Put(context.Background(), []byte("k"), nil) }()
	<-entered
	go func() { closed <- db.Close() }()
	testwait.Until(t, func() bool { return db.calls.stripes[len(db.calls.stripes)-1].count.Load() >= gateClosed })
	require.ErrorIs(t, db.Put(context.Background(), []byte("k"), nil), ErrClosed)
	assert.Empty(t, closed)
	leave()
	require.NoError(t, <-answer)
	require.NoError(t, <-closed)
	require.NoError(t, db.Close(), "twice is harmless")
	ctx := context.Background()
	_, err := db.Get(ctx, []byte("k"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = db.GetMany(ctx, nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Ping(ctx), ErrClosed)
	for _, err := range db.Scan(ctx, All()) {
		require.ErrorIs(t, err, ErrClosed)
	}
}

// cuttable remembers the connections that it makes, so that a test can cut them.
type cuttable struct {
	dial func(context.Context, string) (net.Conn, error)
	mu   sync.Mutex
	open []net.Conn
}

func (c *cuttable) dialer(ctx context.Context, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, address)
	if err == nil {
		c.mu.Lock()
		c.open = append(c.open, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close() // some have been closed before
	}
	c.open = nil
}

// An orderly restart of the server under load leaves no write in doubt and no
// call without an answer.
func TestARestartLeavesNothingInDoubt(t *testing.T) { everyTransport(t, aRestartLeavesNothingInDoubt) }

func aRestartLeavesNothingInDoubt(t *testing.T, opts ...Option) {
	store := servicetest.New(kv.DefaultLimits)
	var current atomic.Pointer[cluster]
	begin := func() *cluster {
		c := serve(t, store, service.Options{})
		current.Store(c)
		return c
	}
	begin()
	dial := WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return current.Load().dialer(ctx, address)
	})
	db, err := Open("memory", append(opts, dial, WithTimeout(testwait.Left()))...)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()

	var all sync.WaitGroup
	var done atomic.Int64
	stop := make(chan struct{})
	for caller := range 16 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Appendf(nil, "%d/%d", caller, i)
				assert.NoError(t, db.Put(context.Background(), key, key))
				_, err := db.Get(context.Background(), key)
				assert.NoError(t, err)
				done.Add(1)
			}
		})
	}
	for range 5 {
		before := done.Load()
		testwait.Until(t, func() bool { return done.Load() > before+100 })
		old := current.Load()
		begin()
		require.NoError(t, old.server.Shutdown(context.Background()))
	}
	close(stop)
	all.Wait()
}

// A call without a context panics, as in any package. If its caller recovers, Close does not wait for it.
func TestACallThatPanickedIsNotInFlight(t *testing.T) {
	db := openMemory(t)
	var none context.Context
	for name, call := range callsOf(db) {
		assert.Panics(t, func() { _ = call(none) }, name)
		for i := range db.calls.stripes {
			assert.Zero(t, db.calls.stripes[i].count.Swap(0), name)
		}
	}
}
