package commit

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
)

// dependent returns a write that depends on a read of its key as the tree shows it now.
func (s *fixture) dependent(key string, level kv.Durability) *kv.Write {
	read := &kv.Lookup{Key: []byte(key), Hash: keyhash.Sum([]byte(key))}
	require.NoError(s.t, partitiontest.Lookup(s.t.Context(), s.p, read))
	return &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte("new")}, Hash: read.Hash, Durability: level, Read: read}
}

// submit hands in writes as one group and does not wait.
func (s *fixture) submit(writes ...*kv.Write) *WriteGroup {
	g := s.c.NewWriteGroup(NewCall(1), writes)
	Submit(s.t.Context(), []*WriteGroup{g})
	return g
}

func (s *fixture) put(key string) *kv.Write {
	w, _ := s.putGroup(key, kv.DurabilityBuffered)
	return w
}

// A write that depends on a read is refused if its key was written since, wherever that write is:
// in the memtable, in line, or in the record that is being laid out. The other writes of its group
// happen.
func TestAWriteIsRefusedIfItsKeyWasWrittenSince(t *testing.T) {
	deleteAll := &kv.WriteBatch{}
	deleteAll.DeleteRange([]byte("k"), []byte("l"))
	for name, change := range map[string]func(s *fixture) (first []*WriteGroup){
		"nowhere":      func(*fixture) []*WriteGroup { return nil },
		"another key":  func(s *fixture) []*WriteGroup { requireDecided(s.t, s.submit(s.put("other"))); return nil },
		"the memtable": func(s *fixture) []*WriteGroup { requireDecided(s.t, s.submit(s.put("k"))); return nil },
		"the line": func(s *fixture) []*WriteGroup {
			s.stall(true)
			return []*WriteGroup{s.submit(s.put("k"))}
		},
		"the line, as one of a batch": func(s *fixture) []*WriteGroup {
			s.stall(true)
			g := s.c.NewBatchGroup(NewCall(1), deleteAll, nil, kv.DurabilityBuffered, kv.RequestID{})
			Submit(s.t.Context(), []*WriteGroup{g})
			return []*WriteGroup{g}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				requireDecided(t, s.submit(s.put("k")))
				w, beside := s.dependent("k", kv.DurabilityBuffered), s.dependent("beside", kv.DurabilityBuffered)
				before := change(s)
				synctest.Wait() // what was put in line is in a record of its own
				g := s.submit(w, beside)
				s.stall(false)
				for _, g := range append(before, g) {
					requireDecided(t, g)
				}
				require.NoError(t, beside.Err)
				if name == "nowhere" || name == "another key" {
					require.NoError(t, w.Err)
					require.Equal(t, beside.Version, w.Version+1)
					return
				}
				var conflict *kv.ConflictError
				require.ErrorAs(t, w.Err, &conflict)
				require.Equal(t, "k", string(conflict.Key))
				require.Greater(t, beside.Version, conflict.Version)
				require.Greater(t, conflict.Version, w.Read.ReadVersion)
				require.EqualValues(t, 1, s.c.stats.conflicts.Load())
			})
		})
	}
}

// Of the writes of one micro-batch that depend on the same state of a key the first one happens.
func TestOneOfTheWritesOfAMicroBatchThatDependOnAKeyHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		require.True(t, s.c.orchestrator.tryLock(), "so that the groups are queued")
		var writes []*kv.Write
		var groups []*WriteGroup
		for i := range 10 {
			first, second := s.dependent("a", kv.DurabilityBuffered), s.dependent(fmt.Sprint(i), kv.DurabilityBuffered)
			writes, groups = append(writes, first, second), append(groups, s.submit(first, second))
		}
		s.c.orchestrator.yield()
		for i, g := range groups {
			requireDecided(t, g)
			require.NoError(t, writes[2*i+1].Err)
			if i == 0 {
				require.NoError(t, writes[0].Err)
			} else {
				var conflict *kv.ConflictError
				require.ErrorAs(t, writes[2*i].Err, &conflict)
				require.EqualValues(t, 11, conflict.Version, "the last number of the record, as for a record in line")
			}
		}
		require.EqualValues(t, 11, s.world.Last(), "the refused ones have no number")
		require.Zero(t, s.c.reads.Keys[:1][0], "no key of a caller is kept")
	})
}

// Few hashes or many: a hash is found among those that have been added so far, and none of an
// earlier record.
func TestWrittenKeys(t *testing.T) {
	var k writtenKeys
	for range 2 {
		var hashes []uint64
		for h := uint64(0); h < 3*fewHashes; h++ {
			require.False(t, k.has(hashes, h))
			hashes = append(hashes, h)
			require.True(t, k.has(hashes, h))
			require.True(t, k.has(hashes, h/2))
		}
		k.reset()
	}
}

// A range delete of the same record counts as a write of every key: its keys are not compared.
func TestAWriteIsRefusedBesideARangeDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		require.True(t, s.c.orchestrator.tryLock())
		w := s.dependent("k", kv.DurabilityBuffered)
		b := &kv.WriteBatch{}
		b.DeleteRange([]byte("a"), []byte("z"))
		deletes := s.c.NewBatchGroup(NewCall(1), b, nil, kv.DurabilityBuffered, kv.RequestID{})
		Submit(t.Context(), []*WriteGroup{deletes})
		g := s.submit(w)
		s.c.orchestrator.yield()
		requireDecided(t, deletes)
		requireDecided(t, g)
		require.ErrorIs(t, w.Err, kv.ErrConflict)
	})
}

// What was read before the last flush cannot be judged by the memtables.
func TestAWriteIsRefusedIfItsReadIsOlderThanTheMemtables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		requireDecided(t, s.submit(s.put("k")))
		w := s.dependent("k", kv.DurabilityBuffered)
		requireDecided(t, s.submit(s.put("other")))
		s.p.Seal()
		synctest.Wait()
		require.NoError(t, s.p.Flush(t.Context()))
		requireDecided(t, s.submit(w))
		require.ErrorIs(t, w.Err, partition.ErrStale)
		require.Zero(t, s.c.stats.conflicts.Load(), "it may not have been written")
	})
}

// An attempt that was applied is found by its request id before the read is judged, by which it
// would conflict with itself.
func TestAWriteThatWasAppliedDoesNotConflictWithItself(t *testing.T) {
	s := newFixture(t)
	named := func() *kv.Write {
		w := s.dependent("k", kv.DurabilityBuffered)
		w.RequestID = kv.RequestID{ClientID: 1, Sequence: 1}
		return w
	}
	first, again, other := named(), named(), s.dependent("k", kv.DurabilityBuffered)
	again.RequestID.Retried = true
	for _, w := range []*kv.Write{first, again, other} {
		requireDecided(t, s.submit(w))
	}
	require.NoError(t, first.Err)
	require.NoError(t, again.Err)
	require.True(t, again.Deduplicated)
	require.Equal(t, first.Version, again.Version)
	require.ErrorIs(t, other.Err, kv.ErrConflict)
}
