package replicated

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
)

const segment = "data/wal/000001.raft"

func dumpOf(fsys vfs.FS) (string, error) {
	var out strings.Builder
	err := inspect.Dump(fsys, segment, &out, inspect.DumpOptions{Log: DumpLog})
	return out.String(), err
}

// writeLog writes a log with every kind of frame but the one that ends a segment, and these entries.
func writeLog(t *testing.T, entries ...*pb.Entry) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data/wal"))
	log, _, err := raftlog.Open(raftlog.Options{FS: fsys, Dir: "data/wal", StoreID: 7, Fresh: true})
	require.NoError(t, err)
	require.NoError(t, log.Write(true, raftlog.Update{
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
			Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &pb.ConfState{Voters: []uint64{1, 2, 3}},
		}},
		HardState: &pb.HardState{Term: new(uint64(5)), Vote: new(uint64(3)), Commit: new(uint64(1))},
	}))
	for i, e := range entries {
		e.Index, e.Term = new(uint64(i+2)), new(uint64(5))
	}
	require.NoError(t, log.Write(true, raftlog.Update{Entries: entries}))
	require.NoError(t, log.Mark())
	require.NoError(t, log.Compact(Group, 2))
	require.NoError(t, log.Close())
	return fsys
}

func dataOf(kind pb.EntryType, data string) *pb.Entry {
	return &pb.Entry{Type: &kind, Data: []byte(data)}
}

const (
	ofTerm4   = "\x01\x04\x00\x00\x00\x00\x00\x00\x00"
	compareAt = "\x02\x03" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00"
	timeAt    = "\x01\x02" + "\x08\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "\xe8\x03\x00\x00\x00\x00\x00\x00"
)

// A dump shows every frame and what it holds.
func TestADumpOfALog(t *testing.T) {
	info, err := encodeInfo(4, Node{Peer: "four:1\n", Client: "four:2", Store: 11, Replaces: 2})
	require.NoError(t, err)
	change, err := proto.Marshal(&pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(4))}}, Context: []byte(info),
	})
	require.NoError(t, err)
	fsys := writeLog(t, dataOf(pb.EntryNormal, ""), dataOf(pb.EntryNormal, ofTerm4+compareAt),
		dataOf(pb.EntryNormal, strings.Replace(ofTerm4, "\x04", "\x05", 1)+timeAt),
		dataOf(pb.EntryConfChangeV2, string(change)), dataOf(pb.EntryConfChangeV2, ""))
	out, err := dumpOf(fsys)
	require.NoError(t, err)
	const golden = "testdata/000001.raft.txt"
	if *updateStore {
		require.NoError(t, os.WriteFile(golden, []byte(out), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out)

	f, err := fsys.OpenReadWrite(segment)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("torn"), size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	out, err = dumpOf(fsys)
	require.NoError(t, err)
	require.Contains(t, out, "the 4 bytes from here on are not printed")
	recovered, err := proto.Marshal(&pb.ConfChangeV2{
		Changes: []*pb.ConfChangeSingle{{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(4))}},
		Context: []byte(encodeRecovered(kv.Incarnation{Recoveries: 2, ID: 9})),
	})
	require.NoError(t, err)
	out, err = dumpOf(writeLog(t, dataOf(pb.EntryConfChangeV2, string(recovered))))
	require.NoError(t, err)
	require.Contains(t, out, "remove node 4, recovery from a lost majority: incarnation 2-0000000000000009")
	flip(t, fsys, segment, 3)
	_, err = dumpOf(fsys)
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

// The log of a node shows what it has written.
func TestADumpShowsTheEntriesOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		c.fill(0, 3)
		n := c.leader()
		_, err := n.log.Add(t.Context(), "two:1", 0)
		require.NoError(t, err)
		require.NoError(t, n.log.Describe(t.Context(), 1, Node{Client: "one:2", Store: 11}))
		c.stop()
		out, err := dumpOf(n.fs)
		require.NoError(t, err)
		for _, want := range []string{
			`nothing: the first entry of a term`, `writes: record `, `put "key 2" = `, `time: number 1`,
			`configuration: learner node 2, node 2 is at "two:1"`, `node 1 is at "", for clients at "one:2", data directory 000000000000000b`,
		} {
			require.Contains(t, out, want)
		}
	})
}

// What no version writes ends the dump with its place and the reason.
func TestEntriesThatADumpCannotDescribe(t *testing.T) {
	told, err := proto.Marshal(&pb.ConfChangeV2{Context: []byte("\x03")})
	require.NoError(t, err)
	recovered, err := proto.Marshal(&pb.ConfChangeV2{Context: []byte("\x02x")})
	require.NoError(t, err)
	writes := ofTerm4 + "\x01\x01" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00" + "no record"
	for _, test := range []struct {
		*pb.Entry
		want error
	}{
		{dataOf(pb.EntryNormal, "\x02"), kv.ErrUnsupportedVersion},
		{dataOf(pb.EntryNormal, "\x01short"), kv.ErrCorrupt},
		{dataOf(pb.EntryNormal, ofTerm4+"\x01"), kv.ErrCorrupt},
		{dataOf(pb.EntryNormal, writes), kv.ErrCorrupt},
		{dataOf(pb.EntryConfChangeV2, "\xff"), kv.ErrCorrupt},
		{dataOf(pb.EntryConfChangeV2, string(told)), kv.ErrUnsupportedVersion},
		{dataOf(pb.EntryConfChangeV2, string(recovered)), kv.ErrCorrupt},
	} {
		out, err := dumpOf(writeLog(t, dataOf(pb.EntryNormal, ""), test.Entry))
		require.ErrorIs(t, err, test.want, "%q", test.Data)
		require.Contains(t, out, "entry 2 of term 5", "what is before it")
	}
}
