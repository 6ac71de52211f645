package kvd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// scissors cut a connection at a chosen moment, once they are armed.
type scissors struct {
	dial      func(context.Context, string) (net.Conn, error)
	onRequest atomic.Bool // cut in place of sending what comes next
	onAnswer  atomic.Bool // cut in place of receiving what comes next
	cuts      atomic.Int32
}

func (s *scissors) dialer(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{conn, s}, nil
}

type cutConn struct {
	net.Conn
	scissors *scissors
}

var errCut = errors.New("cut")

func (c *cutConn) cut() (int, error) {
	c.scissors.cuts.Add(1)
	return 0, errors.Join(errCut, c.Close())
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.scissors.onRequest.CompareAndSwap(true, false) {
		return c.cut()
	}
	return c.Conn.Write(p)
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.scissors.onAnswer.CompareAndSwap(true, false) {
		return c.cut()
	}
	return n, err
}

// Whatever moment a connection breaks at, a write that succeeds was applied once.
func TestAWriteIsAppliedOnceWhereverTheConnectionBreaks(t *testing.T) {
	ctx := context.Background()
	for moment, at := range map[string]func(*scissors, *servicetest.Store){
		"before it is sent": func(s *scissors, _ *servicetest.Store) { s.onRequest.Store(true) },
		"before its answer": func(s *scissors, store *servicetest.Store) {
			arm := sync.OnceFunc(func() { s.onAnswer.Store(true) })
			store.OnWrite = func(context.Context, []*kv.Write) error { arm(); return nil }
			store.OnApply = func(context.Context, *kv.WriteBatch) error { arm(); return nil }
		},
	} {
		for what := range writesOf(nil) {
			t.Run(moment+"/"+what, func(t *testing.T) {
				everyTransport(t, func(t *testing.T, opts ...Option) {
					t.Parallel() // they wait between tries
					store := servicetest.New(kv.DefaultLimits)
					c := serve(t, store, service.Options{})
					cut := &scissors{dial: c.dialer}
					db := c.open(t, append(opts, WithConns(1), WithDialer(cut.dialer))...)
					require.NoError(t, db.Ping(ctx))
					_, err := db.Get(ctx, []byte("k")) // the way of frames is there too
					require.ErrorIs(t, err, ErrNotFound)
					at(cut, store)
					require.NoError(t, writesOf(db)[what](ctx))
					assert.EqualValues(t, 1, cut.cuts.Load())
					assert.EqualValues(t, 1, servertest.VersionOf(t, store))
					require.NoError(t, writesOf(db)[what](ctx))
					assert.EqualValues(t, 2, servertest.VersionOf(t, store), "another write is another")
				})
			})
		}
	}
}

// A try whose connection broke may reach the store after the next one did.
func TestTwoTriesAtTheSameTime(t *testing.T) { everyTransport(t, twoTriesAtTheSameTime) }

func twoTriesAtTheSameTime(t *testing.T, opts ...Option) {
	ctx := context.Background()
	store := servicetest.New(kv.DefaultLimits)
	entered, late := make(chan struct{}), make(chan struct{})
	var tries atomic.Int32
	store.OnWrite = func(context.Context, []*kv.Write) error {
		if tries.Add(1) == 1 {
			close(entered)
			<-late
		}
		return nil
	}
	c := serve(t, store, service.Options{})
	cuts := &cuttable{dial: c.dialer}
	db := c.open(t, append(opts, WithDialer(cuts.dialer))...)
	answer := make(chan error, 1)
	var w Written
	go func() {
		var err error
		w, err = db.PutItem(ctx, []byte("k"), []byte("v"))
		answer <- err
	}()
	<-entered
	cuts.cut()
	require.NoError(t, <-answer)
	put(t, db, "k", "newer")
	close(late)
	require.NoError(t, db.Close())
	require.NoError(t, c.server.Shutdown(ctx)) // the late one has been served
	assert.EqualValues(t, 3, tries.Load())
	assert.EqualValues(t, 1, w.Version)
	assert.EqualValues(t, 2, servertest.VersionOf(t, store))
}

// A server that may have forgotten the name of a write does not guess.
func TestAWriteThatMayBeForgotten(t *testing.T) { everyTransport(t, aWriteThatMayBeForgotten) }

func aWriteThatMayBeForgotten(t *testing.T, opts ...Option) {
	ctx := context.Background()
	store := servicetest.New(kv.DefaultLimits)
	c := serve(t, store, service.Options{})
	cut := &scissors{dial: c.dialer}
	db := c.open(t, append(opts, WithConns(1), WithDialer(cut.dialer))...)
	var once sync.Once
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		if writes[0].RequestID.Retried {
			once.Do(store.ForgetNames)
		} else if string(writes[0].Op.Key) == "lost" {
			cut.onAnswer.Store(true)
		}
		return nil
	}
	put(t, db, "a", "")
	err := db.Put(ctx, []byte("lost"), nil)
	require.ErrorIs(t, err, ErrUncertain)
	require.NotErrorIs(t, err, ErrConflict)
	assert.EqualValues(t, 2, servertest.VersionOf(t, store))
	put(t, db, "b", "")
	put(t, db, "lost", "")
}

// Under load connections are cut again and again. Every call ends and is answered,
// reads succeed, and each write is applied once. Those that return what they replaced, and so have no request id, may be uncertain,
// but what the others say is true: nil means that the write is there, an error
// other than ErrUncertain that it never will be.
func TestWritesAreAccountedForWhenStreamsAreCut(t *testing.T) {
	for name, options := range map[string][]WriteOption{"named": nil, "nameless": {ReturnPrevious()}} {
		t.Run(name, func(t *testing.T) {
			everyTransport(t, func(t *testing.T, opts ...Option) {
				cutUnderLoad(t, name == "named", options, opts)
			})
		})
	}
}

func cutUnderLoad(t *testing.T, named bool, of []WriteOption, opts []Option) {
	ctx := context.Background()
	store := servicetest.New(kv.DefaultLimits)
	var again atomic.Int64
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		for _, w := range writes {
			if w.RequestID.Retried {
				again.Add(1)
			}
		}
		return nil
	}
	c := serve(t, store, service.Options{})
	cuts := &cuttable{dial: c.dialer}
	db, err := Open("memory", append(opts, WithDialer(cuts.dialer), WithTimeout(testwait.Left()))...)
	require.NoError(t, err)

	type outcome struct {
		version uint64
		err     error
	}
	outcomes := make(map[string]outcome)
	var mu sync.Mutex
	var all sync.WaitGroup
	var uncertain, unread atomic.Int64
	stop := make(chan struct{})
	for caller := range 32 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("%d/%d", caller, i)
				var o outcome
				var w Written
				w, o.err = db.PutItem(ctx, []byte(key), []byte(key), of...)
				o.version = w.Version
				if errors.Is(o.err, ErrUncertain) {
					uncertain.Add(1)
				}
				mu.Lock()
				outcomes[key] = o
				mu.Unlock()
				if _, err := db.Get(ctx, []byte(key)); err != nil && !errors.Is(err, ErrNotFound) {
					unread.Add(1)
				}
			}
		})
	}
	hit := &uncertain // what shows that a write was under way at a cut
	if named {
		hit = &again
	}
	for cut := 0; cut < 8 || hit.Load() == 0; cut++ {
		require.Less(t, cut, 1000, "the cuts hit something")
		mu.Lock()
		before := len(outcomes)
		mu.Unlock()
		testwait.Until(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(outcomes) > before+100
		}, "calls go on")
		cuts.cut()
	}
	close(stop)
	all.Wait()
	require.NoError(t, db.Close())
	require.NoError(t, c.server.Shutdown(ctx)) // nothing can be written any more

	there := make(map[string]uint64)
	scanner, err := store.Scan(ctx, kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	for scanner.Next() {
		there[string(scanner.Item().Key)] = uint64(scanner.Item().Version)
	}
	failed := 0
	for key, o := range outcomes {
		switch {
		case o.err == nil:
			assert.Equal(t, o.version, there[key], "%s was acknowledged", key)
		case !errors.Is(o.err, ErrUncertain):
			failed++
			assert.NotContains(t, there, key, "%v", o.err)
		}
	}
	assert.Equal(t, named, uncertain.Load() == 0, "%d uncertain", uncertain.Load())
	assert.Equal(t, named, again.Load() > 0, "%d sent again", again.Load())
	assert.Len(t, there, int(servertest.VersionOf(t, store)), "each was applied once")
	assert.Zero(t, unread.Load(), "reads are tried again")
	t.Logf("%d writes, %d sent again, %d uncertain, %d failed", len(outcomes), again.Load(), uncertain.Load(), failed)
}

// Connections are cut while transactions commit. Each transaction that commits is applied once, by
// whichever way its calls travel, and none that fails is.
func TestTransactionsAreAppliedOnceWhenConnectionsAreCut(t *testing.T) {
	everyTransport(t, transactionsAreAppliedOnce)
}

func transactionsAreAppliedOnce(t *testing.T, opts ...Option) {
	ctx := context.Background()
	store := servicetest.New(kv.DefaultLimits)
	var applied atomic.Int64
	entered, leave := make(chan struct{}), make(chan struct{})
	store.OnApply = func(context.Context, *kv.WriteBatch) error {
		if applied.Add(1)%20 == 0 {
			entered <- struct{}{}
			<-leave // the commit is applied after the connection has ended
		}
		return nil
	}
	c := serve(t, store, service.Options{})
	cuts := &cuttable{dial: c.dialer}
	db, err := Open("memory", append(opts, WithDialer(cuts.dialer), WithTimeout(testwait.Left()))...)
	require.NoError(t, err)
	put(t, db, "first", "") // a snapshot is of some version
	const callers, cutCount = 8, 4
	var committed [callers]int
	var all sync.WaitGroup
	var again atomic.Int64
	stop := make(chan struct{})
	for caller := range callers {
		key := fmt.Appendf(nil, "counter %d", caller)
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var tim Timings
				err := db.Update(ctx, func(tx *Txn) error {
					value, err := tx.Get(ctx, key)
					if err != nil && !errors.Is(err, ErrNotFound) {
						return err
					}
					return tx.Put(ctx, key, append(value, '+'))
				}, CommitWith(Timed(&tim)))
				if tim.Attempts > 1 {
					again.Add(1)
				}
				if err == nil {
					committed[caller]++
				} else {
					assert.NotErrorIs(t, err, ErrUncertain)
				}
			}
		})
	}
	for range cutCount {
		<-entered
		cuts.cut()
		leave <- struct{}{}
	}
	close(stop)
	go func() {
		for range entered {
			leave <- struct{}{}
		}
	}()
	all.Wait()
	assert.Positive(t, again.Load(), "a commit was sent again")
	require.NoError(t, db.Close())
	require.NoError(t, c.server.Shutdown(ctx)) // nothing can be written any more
	close(entered)
	for caller, n := range committed {
		key := fmt.Appendf(nil, "counter %d", caller)
		l := kv.Lookup{Key: key}
		require.NoError(t, store.Lookup(ctx, []*kv.Lookup{&l}))
		assert.Len(t, l.Value, n, "%s", key)
	}
}
