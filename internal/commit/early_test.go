package commit

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/testwait"
)

// Against a map of numbers: records leave a line in any order, from its head or early.
func TestEarlyAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var line []*pending
		next := kv.SeqNum(1)
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			next += kv.SeqNum(rapid.IntRange(0, 3).Draw(t, "numbers of other partitions"))
			units := uint32(rapid.IntRange(0, 3).Draw(t, "units")) // 0: all had been applied before
			line = append(line, &pending{base: next, units: units})
			next += kv.SeqNum(units)
		}
		var set partition.Early
		seen := map[kv.SeqNum]bool{}
		for len(line) > 0 {
			leaves := rapid.SliceOfN(rapid.Bool(), len(line), len(line)).Draw(t, "leaves")
			leaves[rapid.IntRange(0, len(line)-1).Draw(t, "one at least")] = true
			var left, ready []*pending
			for i, rec := range line {
				if leaves[i] {
					ready = append(ready, rec)
				} else {
					left = append(left, rec)
				}
			}
			line = left
			for _, rec := range ready { // all are out of line before the first is added
				if rec.units == 0 {
					continue
				}
				set = with(set, partition.Numbers{First: rec.base, Last: rec.last()}, line)
				for n := rec.base; n <= rec.last(); n++ {
					seen[n] = true
				}
			}
			require.LessOrEqual(t, len(set), len(line)+1)
			if len(set) == 0 {
				continue
			}
			for n := kv.SeqNum(1); n < next; n++ {
				if inLine(line, n) {
					require.False(t, set.Has(n), "number %d of the line is in %v", n, set)
				}
				if seen[n] {
					require.True(t, set.Has(n), "number %d is missing in %v", n, set)
				}
			}
			require.True(t, seen[set.Newest()])
		}
	})
}

func inLine(line []*pending, n kv.SeqNum) bool {
	for _, rec := range line {
		if rec.units > 0 && rec.base <= n && n <= rec.last() {
			return true
		}
	}
	return false
}

// A proposal is visible once the last partition that it writes to has it. A later write
// to what it read elsewhere waits for that, also one that asks for as much and has it.
func TestNoWriteIsSeenBeforeTheProposalThatReadItsKey(t *testing.T) {
	for name, reads := range map[string]partition.Reads{
		"key":   {Keys: []partition.ReadKey{{Key: []byte("x"), Hash: keyhash.Sum([]byte("x"))}}},
		"range": {Ranges: []kv.Range{{Start: []byte("x"), End: []byte("y")}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				o := s.world.Options(s.fs)
				o.ID, o.Dir = 1, "q"
				require.NoError(t, partition.Create(o))
				tree, there := s.open(o)
				defer func() {
					there.Close()
					require.NoError(t, tree.Close())
				}()

				synctest.Wait()
				require.True(t, there.orchestrator.tryLock(), "it is idle")
				commit, err := Propose(&Proposal{
					Shares: []Share{
						{Coordinator: s.c, Reads: reads},
						{Coordinator: there, Ops: []kv.Op{{Kind: kv.KindPut, Key: []byte("w")}}},
					},
					Durability: kv.DurabilitySync, Settled: func() {},
				})
				require.NoError(t, err)
				put := func(key string) *Call {
					call := NewCall(1)
					w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Hash: keyhash.Sum([]byte(key)), Durability: kv.DurabilitySync}
					s.c.enqueue(t.Context(), testwait.Deadline(), s.c.NewWriteGroup(call, []*kv.Write{w}))
					synctest.Wait()
					return call
				}
				follows, other := put("x"), put("z")
				assert.Empty(t, follows.Done(), "the write that follows is there, and the proposal is not")
				require.Len(t, other.Done(), 1)
				there.orchestrator.pass()
				synctest.Wait()
				require.Len(t, follows.Done(), 1)
				_, err = commit.Result()
				require.NoError(t, err)
				require.Len(t, put("x").Done(), 1)
				require.Empty(t, s.c.line.marks, "of a proposal that is over")
			})
		})
	}
}
