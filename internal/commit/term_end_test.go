package commit

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A batch over two partitions is committed, and the second of them to insert it shows it in both.
// The term ends before the first has published it. The batch has happened: its caller is told so,
// it stays visible, and the next coordinator knows its request id.
func TestABatchThatIsShownOutlivesItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world, log := partitiontest.NewWorld(), newTermLog(1, 9)
		var trees [2]*partition.Partition
		var coordinators [2]*Coordinator
		options := func(i int) Options {
			return Options{Orchestrator: NewOrchestrator(nil, new(Company)), ID: i, Tree: trees[i], Applied: world, Now: Clocked(world.Now), InflightBytes: 1 << 20, RequestIDs: NewRequestWindow(9)}
		}
		for i := range trees {
			o := world.Options(vfs.NewMem())
			o.ID = i
			require.NoError(t, partition.Create(o))
			var err error
			trees[i], err = partition.Open(o)
			require.NoError(t, err)
			coordinators[i] = New(options(i))
			trees[i].Attach(coordinators[i])
			coordinators[i].Start(log, 1, 0)
		}
		first, second := coordinators[0], coordinators[1]
		ops := func(key string) []kv.Op { return []kv.Op{{Kind: kv.KindPut, Key: []byte(key), Value: []byte("value")}} }
		found := func(i int, key string) bool {
			r := &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))}
			require.NoError(t, partitiontest.Lookup(t.Context(), trees[i], r))
			return r.Found
		}
		id := kv.RequestID{ClientID: 1, Sequence: 1, Content: 5}
		commit, err := Propose(&Proposal{
			Shares:     []Share{{Coordinator: first, Ops: ops("a")}, {Coordinator: second, Ops: ops("b")}},
			Durability: kv.DurabilitySync, RequestID: id, Settled: func() {},
		})
		require.NoError(t, err)
		synctest.Wait()

		require.True(t, second.orchestrator.tryLock(), "the test leads: the second partition is slow")
		log.commit()
		synctest.Wait()
		require.False(t, found(0, "a"), "the second has not inserted it")
		require.True(t, first.orchestrator.tryLock())
		second.orchestrator.pass()
		synctest.Wait()
		require.True(t, found(0, "a") && found(1, "b"))
		log.end()
		first.orchestrator.pass()
		synctest.Wait()
		<-commit.Done()
		version, err := commit.Result()
		require.NoError(t, err)
		for _, c := range coordinators {
			c.Close()
		}

		next := New(options(0))
		next.Inherit(first)
		id.Retried = true
		remembered, known, err := next.Remembered(id)
		require.NoError(t, err)
		require.True(t, known, "otherwise a retry would be applied again")
		require.Equal(t, version, remembered)
		trees[0].Expect(&partition.Joint{Seq: version + 1}) // of the next term
		require.True(t, found(0, "a"), "what was read once stays")
		for _, p := range trees {
			require.NoError(t, p.Close())
		}
	})
}
