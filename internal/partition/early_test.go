package partition

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
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
		var set early
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
				set = set.with(numbers{rec.base, rec.last()}, line)
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
					require.False(t, set.has(n), "number %d of the line is in %v", n, set)
				}
				if seen[n] {
					require.True(t, set.has(n), "number %d is missing in %v", n, set)
				}
			}
			require.True(t, seen[set.newest()])
		}
	})
}

// A flush may install what is early here as soon as it is visible over all partitions,
// which is before it is published here. A read in between finds it all the same.
func TestAnEarlyWriteIsReadWhileItIsFlushed(t *testing.T) {
	s := newScript(t)
	submit := func(key, value string, level kv.Durability) *Call {
		call := NewCall(1)
		w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Hash: keyhash.Sum([]byte(key)), Durability: level}
		s.p.Submit(t.Context(), NewGroup(call, []*kv.Write{w}))
		return call
	}
	<-submit("key", "old", kv.DurabilitySync).Done()
	require.NoError(t, s.p.FlushAll(t.Context()))

	s.stall(true)
	strong, err := Propose(&Proposal{
		Shares:     []Share{{Partition: s.p, Ops: []kv.Op{{Kind: kv.KindPut, Key: []byte("other")}}}},
		Durability: kv.DurabilitySync, Settled: func() {},
	})
	require.NoError(t, err)
	<-submit("key", "new", kv.DurabilityMemory).Done()
	sealed := make(chan struct{})
	s.p.askSeal(sealed)
	<-sealed
	read := kv.Lookup{Key: []byte("key"), Hash: keyhash.Sum([]byte("key"))}
	var flushed error
	s.world.applied = func(kv.SeqNum) { // of the strong write, which was all that the other waited for
		flushed = s.p.Flush(t.Context())
		read.Err = s.p.Lookup(t.Context(), []*kv.Lookup{&read}, nil)
	}
	s.stall(false)
	<-strong.Done()
	require.NoError(t, flushed)
	require.False(t, s.p.FlushPending())
	require.NoError(t, read.Err)
	require.Equal(t, "new", string(read.Value))
	require.Equal(t, kv.SeqNum(3), read.Version)
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
	for name, reads := range map[string]Reads{
		"key":   {Keys: []ReadKey{{Key: []byte("x"), Hash: keyhash.Sum([]byte("x"))}}},
		"range": {Ranges: []kv.Range{{Start: []byte("x"), End: []byte("y")}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t)
				o := s.options()
				o.ID, o.Dir = 1, "q"
				require.NoError(t, Create(o))
				there, err := Open(o)
				require.NoError(t, err)
				there.Start(s.world, 1, 0)
				defer func() { require.NoError(t, there.Close()) }()

				synctest.Wait()
				require.True(t, there.role.tryTake(), "it is idle")
				commit, err := Propose(&Proposal{
					Shares: []Share{
						{Partition: s.p, Reads: reads},
						{Partition: there, Ops: []kv.Op{{Kind: kv.KindPut, Key: []byte("w")}}},
					},
					Durability: kv.DurabilitySync, Settled: func() {},
				})
				require.NoError(t, err)
				put := func(key string) *Call {
					call := NewCall(1)
					w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Hash: keyhash.Sum([]byte(key)), Durability: kv.DurabilitySync}
					s.p.Submit(t.Context(), NewGroup(call, []*kv.Write{w}))
					synctest.Wait()
					return call
				}
				follows, other := put("x"), put("z")
				assert.Empty(t, follows.Done(), "the write that follows is there, and the proposal is not")
				require.Len(t, other.Done(), 1)
				there.role.pass()
				synctest.Wait()
				require.Len(t, follows.Done(), 1)
				_, err = commit.Result()
				require.NoError(t, err)
				require.Len(t, put("x").Done(), 1)
				require.Empty(t, s.p.turn.marks, "of a proposal that is over")
			})
		})
	}
}
