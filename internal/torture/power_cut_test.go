package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	kvdserver "github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// machine is a server and its disk, in this process, whose power may be cut: a real
// process can be killed, but keeps what the kernel has.
type machine struct {
	disk    *vfs.Mem
	store   *engine.Engine
	server  *kvdserver.Server
	served  chan error
	address atomic.Pointer[bufconn.Listener]
	next    atomic.Pointer[chan struct{}] // closed when the next server serves
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	store, err := engine.Open("data", engine.Options{FS: m.disk, Partitions: 4, MemtableBytes: 8 << 20, FlushKeys: 200})
	require.NoError(t, err)
	s := kvdserver.New(daemon.Store(store), kvdserver.Options{}, daemon.Protocols()...)
	listener, served := bufconn.Listen(64<<10), make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	m.store, m.server, m.served = store, s, served
	m.address.Store(listener)
	next := make(chan struct{})
	if before := m.next.Swap(&next); before != nil {
		close(*before)
	}
}

func (m *machine) stop(t *testing.T) {
	t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel() // what is under way is cut off
	if err := m.server.Shutdown(now); !errors.Is(err, context.Canceled) {
		require.NoError(t, err)
	}
	require.NoError(t, <-m.served)
	require.NoError(t, m.store.Close())
}

// cutPower ends the server, with what its disk had not synced at some moment before,
// and starts another one on the disk.
func (m *machine) cutPower(t *testing.T, p vfs.CrashPolicy, rng *rand.Rand) {
	t.Helper()
	image := m.disk.CrashImage(p, rng)
	m.stop(t)
	m.disk = image
	m.start(t)
}

func (m *machine) client(t *testing.T) *kvd.Client {
	t.Helper()
	db, err := kvd.Open("machine", kvd.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return m.address.Load().DialContext(ctx)
	}), kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	return db
}

// A transaction that read a buffered write, which a power cut took away, does not
// commit after the restart. One that Update runs is run again, and sees what is there.
func TestATransactionDoesNotOutliveWhatItRead(t *testing.T) {
	m := &machine{disk: vfs.NewMem()}
	m.start(t)
	defer func() { m.stop(t) }()
	db := m.client(t)
	defer func() { require.NoError(t, db.Close()) }()
	ctx := t.Context()
	x, y := []byte("x"), []byte("y")
	cut := func() { m.cutPower(t, vfs.DropAll, rand.New(rand.NewPCG(1, 1))) }
	require.NoError(t, db.Put(ctx, x, []byte("1"), kvd.Durable(kvd.Sync)))
	require.NoError(t, db.Put(ctx, x, []byte("2"), kvd.Durable(kvd.Buffered)))

	tx, err := db.Begin()
	require.NoError(t, err)
	read, err := tx.Get(ctx, x)
	require.NoError(t, err)
	require.Equal(t, "2", string(read))
	require.NoError(t, tx.Put(ctx, y, read))
	cut()
	_, err = tx.Commit(ctx, kvd.Durable(kvd.Sync))
	require.ErrorIs(t, err, kvd.ErrVersionGone)
	require.NotErrorIs(t, err, kvd.ErrUncertain)
	_, err = db.Get(ctx, y)
	require.ErrorIs(t, err, kvd.ErrNotFound)

	require.NoError(t, db.Put(ctx, x, []byte("3"), kvd.Durable(kvd.Buffered)))
	var runs []string
	require.NoError(t, db.Update(ctx, func(tx *kvd.Txn) error {
		read, err := tx.Get(ctx, x)
		if err != nil {
			return err
		}
		if runs = append(runs, string(read)); len(runs) == 1 {
			cut()
		}
		return tx.Put(ctx, y, read)
	}))
	require.Equal(t, []string{"3", "1"}, runs)
	got, err := db.Get(ctx, y)
	require.NoError(t, err)
	require.Equal(t, "1", string(got))
}

// Clients that move money between accounts live over power cuts, which take buffered
// writes away that they have read. No money comes or goes.
func TestTransfersOverPowerCutsKeepTheSum(t *testing.T) {
	const clients, accounts, deposit = 8, 100, 100
	cuts := 12
	if testing.Short() {
		cuts = 5
	}
	m := &machine{disk: vfs.NewMem()}
	m.start(t)
	defer func() { m.stop(t) }()
	db := m.client(t)
	defer func() { require.NoError(t, db.Close()) }()
	account := func(n int) []byte { return fmt.Appendf(nil, "account-%d", n) }
	var all kvd.Batch
	for n := range accounts {
		all.Put(account(n), []byte(strconv.Itoa(deposit)))
	}
	_, err := db.Apply(t.Context(), &all, kvd.Durable(kvd.Sync))
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() { stop(); working.Wait() }()
	var transfers, failures atomic.Int64
	for client := range clients {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(2, uint64(client)))
			for ctx.Err() == nil {
				from := rng.IntN(accounts)
				to := (from + 1 + rng.IntN(accounts-1)) % accounts
				durability := kvd.Buffered
				if rng.IntN(100) == 0 { // seldom, or little would be lost
					durability = kvd.Sync
				}
				first := true
				err := db.Update(ctx, func(tx *kvd.Txn) error {
					err := transfer(ctx, tx, account(from), account(to), 1+rng.IntN(deposit/2))
					if client%2 == 0 && first && rng.IntN(4) == 0 { // the others go on meanwhile
						select {
						case <-*m.next.Load():
						case <-ctx.Done():
						}
					}
					first = false
					return err
				}, kvd.CommitWith(kvd.Durable(durability)), kvd.MaxAttempts(1000))
				switch {
				case err == nil:
					transfers.Add(1)
				case errors.Is(err, kvd.ErrUncertain), errors.Is(err, kvd.ErrUnavailable), errors.Is(err, kvd.ErrConflict),
					errors.Is(err, context.Canceled): // by the end of the test, or of the server
					failures.Add(1)
				default:
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	sum := func() (sum int) {
		items := 0
		for item, err := range db.Scan(t.Context(), kvd.Prefix([]byte("account-"))) {
			require.NoError(t, err)
			n, err := strconv.Atoi(string(item.Value))
			require.NoError(t, err)
			sum, items = sum+n, items+1
		}
		require.Equal(t, accounts, items)
		return sum
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for cut := range cuts {
		for before := transfers.Load(); transfers.Load() < before+50 && !t.Failed(); {
			require.Equal(t, accounts*deposit, sum(), "after %d cuts", cut)
		}
		m.cutPower(t, vfs.CrashPolicies[rng.IntN(len(vfs.CrashPolicies))], rng)
	}
	for before := transfers.Load(); transfers.Load() < before+50 && !t.Failed(); {
		require.Equal(t, accounts*deposit, sum(), "after the last cut")
	}
	stop()
	working.Wait()
	require.Equal(t, accounts*deposit, sum())
	t.Logf("%d transfers, %d calls that failed, %d power cuts", transfers.Load(), failures.Load(), cuts)
}

// transfer moves an amount from one account to another.
func transfer(ctx context.Context, tx *kvd.Txn, from, to []byte, amount int) error {
	for _, move := range []struct {
		account []byte
		by      int
	}{{from, -amount}, {to, amount}} {
		value, err := tx.Get(ctx, move.account)
		if err != nil {
			return err
		}
		balance, err := strconv.Atoi(string(value))
		if err != nil {
			return err
		}
		if err := tx.Put(ctx, move.account, []byte(strconv.Itoa(balance+move.by))); err != nil {
			return err
		}
	}
	return nil
}
