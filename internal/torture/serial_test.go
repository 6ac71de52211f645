package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/torture/history"
)

// serialTransactions is how many transactions are replayed, and how many lie
// between two things that befall the server.
func serialTransactions(t *testing.T) (total, between int) {
	t.Helper()
	total = 5_000
	if s := os.Getenv("SERIAL_TXNS"); s != "" {
		var err error
		total, err = strconv.Atoi(s)
		require.NoError(t, err, "SERIAL_TXNS")
	}
	return total, max(min(total/9, 12_000), 1)
}

// nemesis is what befalls a server.
type nemesis struct {
	t      *testing.T
	dir    string
	server *server
	store  *remoteStore
	rng    *rand.Rand
	kills  int
	pauses int
}

func (n *nemesis) start() error {
	// Small memtables: what befalls the server falls into flushes and merges too.
	n.server = serve(n.t, n.dir, "--partitions", "4", "--memory", "64MiB", "--flush-keys", "3000")
	return n.store.begin(n.server.addr)
}

func (n *nemesis) killAndRestart() error {
	n.kills++
	n.server.kill(n.t)
	return n.start()
}

// pause stops the process for longer than a client waits, so that its writes are
// sent again while the first attempt lies in front of a server that has not looked
// at it.
func (n *nemesis) pause() error {
	n.pauses++
	if err := n.server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(100*time.Millisecond + n.upTo(800*time.Millisecond))
	return n.server.cmd.Process.Signal(syscall.SIGCONT)
}

// work disturbs the server each time some more transactions have been committed, until ended is
// closed. After all disturbances are done it continues to kill: a client that does not know
// whether its own attempt is still running waits for a kill. So a kill follows every pause, which
// causes such clients, before the server may forget the request.
func (n *nemesis) work(due <-chan bool, ended <-chan struct{}) error {
	last, paused := false, false
	for {
		var lull <-chan time.Time
		if last {
			lull = time.After(2 * time.Second)
		}
		select {
		case last = <-due:
		case <-lull:
		case <-ended:
			return nil
		}
		time.Sleep(n.upTo(50 * time.Millisecond)) // the moment is meant to be arbitrary
		act := n.killAndRestart
		paused = !paused && (!last && n.rng.IntN(2) == 0 || n.kills > 0 && n.pauses == 0)
		if paused {
			act = n.pause
		}
		if err := act(); err != nil {
			return err
		}
	}
}

// Many clients run transactions and all other calls against a server that is killed, restarted
// and paused. A client that does not know the outcome of a write sends it again. Replaying all
// answers in the order of their versions must give what one client after another would have seen.
func TestKilledServerIsStrictlySerializable(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	if testing.Short() && os.Getenv("SERIAL_TXNS") == "" {
		t.Skip("seconds of real processes")
	}
	total, between := serialTransactions(t)
	due := make(chan bool, total/between+1)
	run := history.Run{
		Plan: history.Plan{
			Keys: 2500, Span: 10, Timeout: 400 * time.Millisecond, Start: time.Now(),
			// Few syncs, for everybody waits for them, and a kill takes no buffered write.
			Durabilities: append(slices.Repeat([]kv.Durability{kv.DurabilityBuffered}, 99), kv.DurabilitySync),
		},
		Clients: 16, Transactions: total, Seed: uint64(time.Now().UnixNano()),
	}
	run.Every = func(n int64) {
		if n%int64(between) == 0 && n <= int64(total) {
			due <- n+int64(between) > int64(total)
		}
	}
	t.Logf("seed %d", run.Seed)
	n := &nemesis{t: t, dir: t.TempDir(), store: new(remoteStore), rng: rand.New(rand.NewPCG(run.Seed, 0))}
	require.NoError(t, n.start())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		worked := false
		defer func() {
			if !worked {
				cancel() // no client may wait for a restart that does not come
			}
		}()
		worked = assert.NoError(t, n.work(due, ended))
	})
	logs, tally, err := run.Do(ctx, n.store)
	took := time.Since(run.Start)
	close(ended)
	working.Wait()
	assert.NoError(t, err)
	assert.NoError(t, n.store.life.Load().conn.Close())
	n.server.stop(t)

	began := time.Now()
	report := history.Check(run.Keys, logs...)
	fmt.Printf("serializable: %s\n", &tally)
	fmt.Printf("serializable: %d kills, %d pauses, %.1f s, %.0f transactions a second; replayed in %.1f s: %s\n",
		n.kills, n.pauses, took.Seconds(), float64(tally.Transactions)/took.Seconds(), time.Since(began).Seconds(), report)
	require.Zero(t, report.Count)
	require.NoError(t, err)
	require.GreaterOrEqual(t, report.Commits, total)
	require.Zero(t, tally.Forgotten)
	require.Zero(t, report.Unseen+report.Resolved, "every outcome was found out")
	for what, count := range map[string]int{
		"kills": n.kills, "pauses": n.pauses, "conflicts": tally.Conflicts, "conditional writes": tally.Conditional,
		"failed conditions": tally.ConditionalFailures, "executions": tally.Executions,
		"writes that were sent again": tally.Applied + tally.AppliedByRetry + tally.RefusedAtRetry,
	} {
		assert.Positive(t, count, what)
	}
}

// upTo returns a random duration.
func (n *nemesis) upTo(most time.Duration) time.Duration {
	return time.Duration(n.rng.Int64N(int64(most)))
}
