package engine

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/torture/history"
	"github.com/kvd-db/kvd/internal/vfs"
)

func serialPlan(durabilities ...kv.Durability) history.Plan {
	return history.Plan{Keys: 500, Span: 10, Durabilities: durabilities, Start: time.Now()}
}

// The operations of many concurrent clients have one order, that of their versions, which
// agrees with real time.
func TestEverythingIsStrictlySerializable(t *testing.T) {
	run := history.Run{
		Plan:    serialPlan(kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync),
		Clients: 16, Transactions: 10_000, Seed: 1,
	}
	if testsize.Reduced() {
		run.Transactions = 1600
	}
	o := small(vfs.NewMem())
	o.MemtableBytes, o.FlushKeys = 4<<20, run.Transactions/10
	e := open(t, o)
	run.Every = flushAtEighths(t, e, run.Transactions)
	tally := judgeRun(t, &run, engineStore{e})
	t.Logf("%s", &tally)
	requireAllKinds(t, &tally)
	require.Greater(t, flushesOf(e), uint64(4), "versions were read from tables too")
}

// The same where a batch has a condition on a key in memory and one on a key on disk,
// in one partition, whose values lie with the keys or in value files.
func TestGuardsInMemoryAndOnDiskAreStrictlySerializable(t *testing.T) {
	run := history.Run{
		Plan: history.Plan{
			Keys: 60, Span: 10, Cold: 40, Start: time.Now(), Durabilities: []kv.Durability{kv.DurabilityMemory},
		},
		Clients: 16, Transactions: 10_000, Seed: 1,
	}
	if testsize.Reduced() {
		run.Transactions = 1600
	}
	o := small(vfs.NewMem())
	o.Partitions, o.MemtableBytes, o.FlushKeys, o.CacheBytes, o.ValueThreshold = 1, 4<<20, 100, 1, 40
	e := open(t, o)
	run.Every = flushAtEighths(t, e, run.Transactions)
	tally := judgeRun(t, &run, engineStore{e})
	t.Logf("%s", &tally)
	requireAllKinds(t, &tally)
	require.Greater(t, flushesOf(e), uint64(4))
}

// requireAllKinds sees that a run was of any use.
func requireAllKinds(t testing.TB, tally *history.Tally) {
	t.Helper()
	for what, n := range map[string]int{
		"conflicts": tally.Conflicts, "conditional writes": tally.Conditional, "failed conditions": tally.ConditionalFailures,
		"plain writes": tally.Plain, "executions": tally.Executions,
		"gets": tally.Gets, "snapshots": tally.Snapshots, "scans": tally.Scans,
	} {
		assert.Positive(t, n, what)
	}
}

// The same over crashes: power cuts, which only sync writes survive, and kills.
// A client that got no answer sends the write again in the next life of the store; it must
// not be applied twice.
func TestCrashesKeepSerializability(t *testing.T) {
	for name, crash := range map[string]struct {
		durabilities []kv.Durability
		image        func(disk *vfs.Mem, rng *rand.Rand) *vfs.Mem
	}{
		"power cuts": {[]kv.Durability{kv.DurabilitySync}, func(disk *vfs.Mem, rng *rand.Rand) *vfs.Mem {
			return disk.CrashImage(vfs.CrashPolicies[rng.IntN(len(vfs.CrashPolicies))], rng)
		}},
		"kills": {[]kv.Durability{kv.DurabilityBuffered, kv.DurabilitySync}, func(disk *vfs.Mem, _ *rand.Rand) *vfs.Mem {
			return disk.KillImage()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			const crashes = 8
			run := history.Run{Plan: serialPlan(crash.durabilities...), Clients: 16, Transactions: 3000, Seed: 2}
			if testsize.Reduced() {
				run.Transactions = 1200
			}
			due := make(chan struct{}, run.Transactions)
			run.Every = func(n int64) {
				if n%int64(run.Transactions/crashes) == 0 {
					due <- struct{}{}
				}
			}
			rng := rand.New(rand.NewPCG(3, 4))
			disk := vfs.NewMem()
			o := small(disk)
			o.MemtableBytes, o.FlushKeys = 4<<20, 500
			o.SegmentBytes = 4 << 20 // all of the run: a client that is held up learns its outcome, too
			var store restartingStore
			store.begin(open(t, o))

			ended := make(chan struct{})
			var nemesis sync.WaitGroup
			nemesis.Go(func() {
				for {
					select {
					case <-due:
					case <-ended:
						return
					}
					err := store.crash(func() (*Engine, error) {
						o.FS = crash.image(o.FS.(*vfs.Mem), rng)
						return Open("data", o)
					})
					if !assert.NoError(t, err) {
						return
					}
				}
			})
			tally := func() history.Tally {
				defer func() {
					close(ended)
					nemesis.Wait()
					require.NoError(t, store.life.Load().store.Close())
				}()
				return judgeRun(t, &run, &store)
			}()
			t.Logf("%d lives; %s", store.Life(), &tally)
			requireAllKinds(t, &tally)
			require.Greater(t, store.Life(), crashes/2)
			require.Positive(t, tally.Applied, "some writes were in the log when the store crashed")
			require.Positive(t, tally.Deduplicated)
			require.Positive(t, tally.AppliedByRetry+tally.RefusedAtRetry)
			require.Zero(t, tally.Forgotten)
		})
	}
}
