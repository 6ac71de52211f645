package partition_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
)

// A flush may install what is early here as soon as it is visible over all partitions,
// which is before it is published here. A read in between finds it all the same.
func TestAnEarlyWriteIsReadWhileItIsFlushed(t *testing.T) {
	s := newScript(t)
	submit := func(key, value string, level kv.Durability) *commit.Call {
		call := commit.NewCall(1)
		w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Hash: keyhash.Sum([]byte(key)), Durability: level}
		commit.Submit(t.Context(), []*commit.WriteGroup{s.c.NewWriteGroup(call, []*kv.Write{w})})
		return call
	}
	<-submit("key", "old", kv.DurabilitySync).Done()
	require.NoError(t, s.p.FlushAll(t.Context()))

	s.stall(true)
	strong, err := commit.Propose(&commit.Proposal{
		Shares:     []commit.Share{{Coordinator: s.c, Ops: []kv.Op{{Kind: kv.KindPut, Key: []byte("other")}}}},
		Durability: kv.DurabilitySync, Settled: func() {},
	})
	require.NoError(t, err)
	<-submit("key", "new", kv.DurabilityMemory).Done()
	sealed := make(chan struct{})
	s.p.AskSeal(sealed)
	<-sealed
	read := kv.Lookup{Key: []byte("key"), Hash: keyhash.Sum([]byte("key"))}
	var flushed error
	s.world.OnApplied = func(kv.SeqNum) { // of the strong write, which was all that the other waited for
		flushed = s.p.Flush(t.Context())
		read.Err = partitiontest.Lookup(t.Context(), s.p, &read)
	}
	s.stall(false)
	<-strong.Done()
	require.NoError(t, flushed)
	require.False(t, s.p.FlushPending())
	require.NoError(t, read.Err)
	require.Equal(t, "new", string(read.Value))
	require.Equal(t, kv.SeqNum(3), read.Version)
}
