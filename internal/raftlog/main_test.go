package raftlog

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testDir   = "data/raft"
	testStore = 0x5eed_5eed_5eed_5eed
	testGroup = 3
)

func newDisk(t require.TestingT) *vfs.Mem {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("data"))
	require.NoError(t, m.SyncDir("/"))
	return m
}

func testOptions(fsys vfs.FS, fresh bool) Options {
	return Options{FS: fsys, Dir: testDir, StoreID: testStore, SegmentBytes: 1 << 10, CacheBytes: 100, Fresh: fresh}
}

func mustOpen(t require.TestingT, o Options) *Log {
	l, _, err := Open(o)
	require.NoError(t, err)
	return l
}

func hardState(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func snapshot(index, term uint64, voters ...uint64) *pb.Snapshot {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &index, Term: &term, ConfState: &pb.ConfState{Voters: voters}}}
}

// entries returns n entries from index first on.
func entries(first, term uint64, n int, bytes int) []*pb.Entry {
	es := make([]*pb.Entry, n)
	for i := range es {
		index, kind := first+uint64(i), pb.EntryNormal
		data := fmt.Appendf(nil, "%d/%d.", index, term)
		es[i] = &pb.Entry{Index: &index, Term: &term, Type: &kind, Data: append(data, make([]byte, bytes)...)}
	}
	return es
}

// describe returns all that a storage holds, as text. The commit index is that which a log
// that lost its end has.
func describe(t require.TestingT, s raft.Storage) string {
	var b strings.Builder
	h, conf, err := s.InitialState()
	require.NoError(t, err)
	snap, err := s.Snapshot()
	require.NoError(t, err)
	first, err := s.FirstIndex()
	require.NoError(t, err)
	last, err := s.LastIndex()
	require.NoError(t, err)
	mark := snap.GetMetadata()
	fmt.Fprintf(&b, "term %d vote %d commit %d, snapshot %d/%d %v, entries %d to %d:",
		h.GetTerm(), h.GetVote(), max(min(h.GetCommit(), last), mark.GetIndex()), mark.GetIndex(), mark.GetTerm(), conf.GetVoters(), first, last)
	before, err := s.Term(first - 1)
	require.NoError(t, err)
	fmt.Fprintf(&b, " %d", before)
	if last < first {
		return b.String()
	}
	es, err := s.Entries(first, last+1, math.MaxUint64)
	require.NoError(t, err)
	require.Len(t, es, int(last+1-first))
	for i, e := range es {
		require.Equal(t, first+uint64(i), e.GetIndex())
		term, err := s.Term(e.GetIndex())
		require.NoError(t, err)
		require.Equal(t, e.GetTerm(), term)
		fmt.Fprintf(&b, " %s(%d,%d)", strings.TrimRight(string(e.GetData()), "\x00"), e.GetType(), len(e.GetData()))
	}
	return b.String()
}

// model is raft's own storage in memory, which says what the log has to hold, and the
// states after each frame that the log writes.
type model struct {
	*raft.MemoryStorage
	t      require.TestingT
	states []string
}

func newModel(t require.TestingT) *model {
	m := &model{MemoryStorage: raft.NewMemoryStorage(), t: t}
	require.NoError(t, m.SetHardState(&pb.HardState{}))
	m.note()
	return m
}

func (m *model) note() { m.states = append(m.states, describe(m.t, m)) }

func (m *model) write(u Update) {
	if u.Snapshot != nil {
		require.NoError(m.t, m.ApplySnapshot(u.Snapshot))
		m.note()
	}
	if u.HardState != nil {
		require.NoError(m.t, m.SetHardState(u.HardState))
		m.note()
	}
	if len(u.Entries) > 0 {
		require.NoError(m.t, m.Append(slices.Clone(u.Entries)))
		m.note()
	}
}
