package descriptor

import (
	"encoding/binary"
	"hash/crc32"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

var sampleNode = Node{
	StoreID: sample.StoreID, Cluster: 0xfedc_ba98_7654_3210, Node: 3,
	Members: map[uint64]string{1: "10.0.0.1:7072", 3: "[2001:db8::3]:7072", 1 << 40: "db-4.example.org:7072"},
}

func TestNodeFileIsWhatFormatOneWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1/NODE")
	require.NoError(t, err)
	require.Equal(t, golden, sampleNode.Encode())
	n, err := DecodeNode("NODE", golden)
	require.NoError(t, err)
	assert.Equal(t, sampleNode, n)
}

// A cluster that was recovered needs another format, so that an older kvd does not take the node for one
// of what was before.
func TestNodeFileIsWhatFormatTwoWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v2/NODE")
	require.NoError(t, err)
	require.Equal(t, golden, encoded(recoveredNode()))
	n, err := DecodeNode("NODE", golden)
	require.NoError(t, err)
	assert.Equal(t, recoveredNode(), n)
}

func encoded(n Node) []byte { return n.Encode() }

func recoveredNode() Node {
	n := sampleNode
	n.Incarnation = kv.Incarnation{Recoveries: 2, ID: 0x0123_4567_89ab_cdef}
	return n
}

func TestReadFindsTheNodeOfItsStoreAlone(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	_, err := ReadNode(fsys, "data", sample.StoreID)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, WriteNode(fsys, "data", &sampleNode))
	n, err := ReadNode(fsys, "data", sample.StoreID)
	require.NoError(t, err)
	assert.Equal(t, sampleNode, n)
	_, err = ReadNode(fsys, "data", sample.StoreID+1)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "it was copied from another directory")
}

// The addresses may change, and nothing else: a store that was a node never becomes another.
func TestANodeStaysTheSame(t *testing.T) {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	require.NoError(t, WriteNode(fsys, "data", &sampleNode))
	for _, change := range []func(*Node){func(n *Node) { n.Cluster++ }, func(n *Node) { n.Node = 1 }} {
		other := sampleNode
		change(&other)
		err := WriteNode(fsys, "data", &other)
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "use an empty directory")
	}
	other := sampleNode
	other.StoreID++
	require.ErrorIs(t, WriteNode(fsys, "data", &other), kv.ErrCorrupt)
	other = sampleNode
	other.Members = map[uint64]string{3: "127.0.0.1:1"}
	require.NoError(t, WriteNode(fsys, "data", &other))
	n, err := ReadNode(fsys, "data", sample.StoreID)
	require.NoError(t, err)
	require.Equal(t, other, n)
	recovered := recoveredNode()
	require.NoError(t, WriteNode(fsys, "data", &recovered))
	require.ErrorContains(t, WriteNode(fsys, "data", &sampleNode), "is of incarnation 2-0123456789abcdef of the cluster, and cannot become one of 0")
	other = recovered
	other.Incarnation.ID++
	require.ErrorIs(t, WriteNode(fsys, "data", &other), kv.ErrInvalidArgument, "another recovery, of the same number")
	n, err = ReadNode(fsys, "data", sample.StoreID)
	require.NoError(t, err)
	require.Equal(t, recovered, n)
	failing := faultfs.Wrap(fsys, faultfs.FailAt(0, fs.ErrInvalid, true))
	require.ErrorIs(t, WriteNode(failing, "data", &recovered), fs.ErrInvalid)
}

func TestNodesThatCannotBe(t *testing.T) {
	for what, change := range map[string]func(*Node){
		"no cluster":       func(n *Node) { n.Cluster = 0 },
		"no id":            func(n *Node) { n.Node = 0 },
		"a reserved id":    func(n *Node) { n.Node = 1<<64 - 1 },
		"no address":       func(n *Node) { n.Members = map[uint64]string{1: "x:1"} },
		"an empty address": func(n *Node) { n.Members = map[uint64]string{3: "x:1", 4: ""} },
		"a long address":   func(n *Node) { n.Members = map[uint64]string{3: strings.Repeat("x", MaxAddressBytes+1)} },
		"too many": func(n *Node) {
			n.Members = map[uint64]string{}
			for id := range uint64(MaxMembers + 1) {
				n.Members[id+1] = "x:1"
			}
		},
	} {
		n := sampleNode
		change(&n)
		require.ErrorIs(t, n.Check(), kv.ErrInvalidArgument, what)
		require.ErrorIs(t, WriteNode(vfs.NewMem(), "data", &n), kv.ErrInvalidArgument, what)
		_, err := DecodeNode("NODE", n.Encode())
		require.ErrorIs(t, err, kv.ErrCorrupt, what)
	}
	require.NotEqual(t, NewID(), NewID())
}

func TestAddressesOfNodes(t *testing.T) {
	for _, good := range []string{"db1:7100", "db-1.example.org:1", "127.0.0.1:65535", "[::1]:7100", "[fe80::1%eth0]:7100", "my_host:7100"} {
		require.NoError(t, CheckAddress(good), good)
	}
	for bad, want := range map[string]string{
		"": "want HOST:PORT", "db1": "want HOST:PORT", "::1:7100": "want HOST:PORT",
		"db1:": `its port is ""`, "db1:0": `its port is "0"`, "db1:http": `its port is "http"`, "db1:65536": `its port is "65536"`, "db1:-1": `its port is "-1"`,
		":7100": "it has no host", "0.0.0.0:7100": "0.0.0.0 means no single machine", "[::]:7100": ":: means no single machine", "224.0.0.1:7100": "no single machine",
		"a%zz:7100": "is no name of a machine", "a b:7100": "is no name of a machine", "user@db1:7100": "is no name of a machine", "a/b:7100": "is no name of a machine",
		strings.Repeat("a", MaxAddressBytes) + ":1": "has 302 bytes",
	} {
		require.ErrorContains(t, CheckAddress(bad), want, bad)
	}
}

func TestEveryFlippedBitAndEveryCutOfTheNodeIsDamageOrANewerVersion(t *testing.T) {
	for _, n := range []Node{sampleNode, recoveredNode()} {
		whole := n.Encode()
		for i := range whole {
			for bit := range 8 {
				b := n.Encode()
				b[i] ^= 1 << bit
				_, err := DecodeNode("data/NODE", b)
				if i >= 8 && i < preambleBytes && (i > 8 || b[i] > NewestNodeFormat) {
					require.ErrorIs(t, err, kv.ErrUnsupportedVersion, "byte %d", i)
					continue
				}
				require.ErrorIs(t, err, kv.ErrCorrupt, "byte %d bit %d", i, bit)
			}
			_, err := DecodeNode("NODE", whole[:i])
			require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", i)
		}
		_, err := DecodeNode("NODE", append(whole, 0))
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
}

// FuzzDecodeNode: Encode writes exactly what DecodeNode accepts.
func FuzzDecodeNode(f *testing.F) {
	f.Add(sampleNode.Encode())
	recovered := recoveredNode()
	f.Add(recovered.Encode())
	f.Add([]byte(nodeMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > nodeHeadBytes+4 { // most inputs have a wrong checksum
			b = binary.LittleEndian.AppendUint32(b[:len(b)-4], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		n, err := DecodeNode("NODE", b)
		if err == nil {
			require.Equal(t, b, n.Encode())
		}
	})
}

// A store with the logs of both is that of a single node until it has NODE.
func TestWhichLogAStoreHas(t *testing.T) {
	for _, test := range []struct {
		files           string
		own, replicated bool
	}{
		{"wal/", false, false},
		{"wal/000001.wal", true, false},
		{"wal/000001.raft", false, true},
		{"wal/000001.raft NODE", false, true},
		{"wal/000001.wal wal/000001.raft", true, false},
		{"wal/000001.wal wal/000001.raft NODE", true, true},
		{"wal/000001.wal NODE", true, false},
	} {
		fsys := vfs.NewMem()
		require.NoError(t, fsys.MkdirAll("data/wal"))
		for name := range strings.FieldsSeq(test.files) {
			if strings.HasSuffix(name, "/") {
				continue
			}
			f, err := fsys.Create("data/" + name)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		require.Equal(t, test.own, HasOwnLog(fsys, "data"), test.files)
		require.Equal(t, test.replicated, HasReplicatedLog(fsys, "data"), test.files)
	}
	require.False(t, HasOwnLog(vfs.NewMem(), "data"))
	require.False(t, HasReplicatedLog(vfs.NewMem(), "data"))
}
