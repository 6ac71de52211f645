package replicated

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
)

func sample() *Configuration {
	return &Configuration{
		Conf: &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{4}},
		Nodes: map[uint64]Node{
			1: {Peer: "a:1", Client: "a:2", Store: 11},
			2: {Peer: "b:1"},
			4: {Peer: "d:1", Replaces: 2},
		},
		Next: 5, First: []uint64{1, 2, 3},
	}
}

func TestConfigurationsAreKept(t *testing.T) {
	want := sample()
	b, err := want.encode()
	require.NoError(t, err)
	got, err := decodeConfiguration(b, map[uint64]string{1: "elsewhere"})
	require.NoError(t, err)
	require.True(t, proto.Equal(want.Conf, got.Conf))
	got.Conf = want.Conf
	require.Equal(t, want, got)

	golden, err := os.ReadFile("testdata/configuration-v2.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))

	// A cluster that was recovered needs version 3.
	recovered := sample()
	recovered.Incarnation = kv.Incarnation{Recoveries: 2, ID: 0xc0ffee}
	b, err = recovered.encode()
	require.NoError(t, err)
	got, err = decodeConfiguration(b, nil)
	require.NoError(t, err)
	got.Conf = recovered.Conf
	require.Equal(t, recovered, got)
	golden, err = os.ReadFile("testdata/configuration-v3.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))
	b[0] = configurationVersion
	_, err = decodeConfiguration(b, nil)
	require.ErrorIs(t, err, kv.ErrCorrupt, "version 2 has no incarnation")

	// Version 1 has no addresses.
	old, err := proto.Marshal(want.Conf)
	require.NoError(t, err)
	got, err = decodeConfiguration(old, map[uint64]string{1: "a:1", 9: "z:1"})
	require.NoError(t, err)
	require.Equal(t, map[uint64]Node{1: {Peer: "a:1"}, 2: {}, 4: {}}, got.Nodes)
	require.Equal(t, uint64(5), got.Next)

	for _, bad := range [][]byte{nil, {0}, {4}, {7, 1}} {
		_, err = decodeConfiguration(bad, nil)
		require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	}
	for _, bad := range [][]byte{{8}, {configurationVersion, 0xff}, {configurationVersion, 0x0a, 1, 8}, {recoveredVersion}, {recoveredVersion, 0x2a, 1, 'x'}} {
		_, err = decodeConfiguration(bad, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
}

func FuzzDecodeConfiguration(f *testing.F) {
	b, err := sample().encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add(b[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeConfiguration(b, nil)
		if err != nil {
			return
		}
		again, err := c.encode()
		require.NoError(t, err)
		same, err := decodeConfiguration(again, nil)
		require.NoError(t, err)
		require.Equal(t, c.Nodes, same.Nodes)
		require.Equal(t, c.Incarnation, same.Incarnation)
		_, _ = c.after(c.Conf, string(b))
	})
}

func TestWhatIsToldOfANode(t *testing.T) {
	info, err := encodeInfo(4, Node{Peer: "d:1", Client: "d:2", Store: 7, Replaces: 2})
	require.NoError(t, err)
	require.Equal(t, "01080412"+"03643a31"+"1a03643a32"+"210700000000000000"+"2802", hex.EncodeToString([]byte(info)), "version 1")
	c, err := sample().after(sample().Conf, info)
	require.NoError(t, err)
	require.Equal(t, Node{Peer: "d:1", Client: "d:2", Store: 7, Replaces: 2}, c.Nodes[4])
	require.Equal(t, sample().Nodes[1], c.Nodes[1])

	// Node 4 becomes a voter in place of node 2: first both count, then the old one is gone.
	joint := &pb.ConfState{Voters: []uint64{1, 4}, VotersOutgoing: []uint64{1, 2}}
	c, err = c.after(joint, "")
	require.NoError(t, err)
	require.Equal(t, uint64(2), c.Nodes[4].Replaces)
	require.Len(t, c.Nodes, 3)
	c, err = c.after(&pb.ConfState{Voters: []uint64{1, 4}}, "")
	require.NoError(t, err)
	require.Zero(t, c.Nodes[4].Replaces)
	require.True(t, c.removed(2))
	require.False(t, c.removed(4))
	require.False(t, c.removed(5), "it is not there yet")
	require.Equal(t, uint64(5), c.Next)
	require.Equal(t, map[uint64]string{1: "a:1", 4: "d:1", 6: "f:1"}, c.Addresses(map[uint64]string{1: "old:1", 2: "b:1", 6: "f:1"}))

	// A recovery tells the incarnation, which stays.
	c, err = c.after(c.Conf, "\x022-00c0ffee00c0ffee")
	require.NoError(t, err)
	require.Equal(t, "\x022-00c0ffee00c0ffee", encodeRecovered(c.Incarnation))
	require.Equal(t, Node{Peer: "d:1", Client: "d:2", Store: 7}, c.Nodes[4])
	c, err = c.after(c.Conf, "")
	require.NoError(t, err)
	require.Equal(t, kv.Incarnation{Recoveries: 2, ID: 0xc0ffee_00c0ffee}, c.Incarnation)

	for bad, want := range map[string]error{"\x03": kv.ErrUnsupportedVersion, "\x01\xff": kv.ErrCorrupt, "\x02": kv.ErrCorrupt, "\x020": kv.ErrCorrupt, "\x021-x": kv.ErrCorrupt} {
		_, err = c.after(c.Conf, bad)
		require.ErrorIs(t, err, want)
	}
}

func TestNodesThatMayJoin(t *testing.T) {
	c := sample()
	for _, test := range []struct {
		peer     string
		replaces uint64
		stale    []uint64
		refused  string
	}{
		{"e:1", 0, nil, ""},
		{"d:1", 0, []uint64{4}, ""}, // never started
		{"e:1", 2, []uint64{4}, ""}, // likewise: it was to replace node 2
		{"b:1", 2, []uint64{4}, ""}, // on the machine of the one that it replaces
		{"a:1", 2, nil, "node 1 has the address a:1"},
		{"e:1", 3, nil, "node 3 was removed already"},
		{"e:1", 5, nil, "there is no node 5; the cluster has the nodes 1, 2, 4"},
	} {
		stale, err := c.replaceable(test.peer, test.replaces)
		if test.refused != "" {
			require.ErrorIs(t, err, kv.ErrInvalidArgument)
			require.ErrorContains(t, err, test.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.stale, stale)
	}
	started := c.Nodes[4]
	started.Store = 44
	c.Nodes[4] = started
	_, err := c.replaceable("d:1", 0)
	require.ErrorContains(t, err, "--replace 4")
	_, err = c.replaceable("e:1", 2)
	require.ErrorContains(t, err, "node 4 is about to replace node 2")
	for id := uint64(10); len(c.Nodes) < MaxNodes; id++ {
		c.Nodes[id] = Node{Peer: "x", Store: id}
	}
	_, err = c.replaceable("e:1", 0)
	require.ErrorContains(t, err, "as many as it may have")
}
