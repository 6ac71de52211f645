package partition

import (
	"testing"

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
			i := rapid.IntRange(0, len(line)-1).Draw(t, "leaves")
			rec := line[i]
			line = append(line[:i:i], line[i+1:]...)
			if rec.units == 0 {
				continue
			}
			set = set.with(numbers{rec.base, rec.last()}, line)
			for n := rec.base; n <= rec.last(); n++ {
				seen[n] = true
			}
			require.LessOrEqual(t, len(set), len(line)+1)
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
