package daemon

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/testrelay"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// Of three nodes two are lost for ever. The third one is made the only one, has what was
// written, and takes writes; another one of old that comes back is refused.
func TestRecoveryFromALostMajority(t *testing.T) {
	require.ErrorIs(t, RecoverNode(vfs.NewMem(), "data", nil), fs.ErrNotExist)
	disks := make([]*vfs.Mem, 3)
	starts, logged := clusterOn(t, disks)
	var nodes []*running
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	require.Equal(t, "0", nodes[0].status(calm).Incarnation)
	putAnywhere(t, nodes, "k")
	_, err := nodes[0].client.Get(t.Context(), []byte("k")) // it has it, too
	require.NoError(t, err)
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
	var plans []int
	recover := func(do bool) {
		require.NoError(t, RecoverNode(disks[0], "data", func(n descriptor.Node, p *replica.Recovery) bool {
			require.Equal(t, uint64(1), n.Node)
			plans = append(plans, len(p.Others))
			return do
		}))
	}
	recover(false)
	recover(true)
	recover(true)
	require.Equal(t, []int{2, 2, 0}, plans)

	incarnation := noted(t, disks[0]).Incarnation
	require.Equal(t, uint32(1), incarnation.Recoveries)
	require.NotZero(t, incarnation.ID)
	alone := starts[0]()
	alone.status(func(c *kvd.Cluster) bool {
		return c.Leader == 1 && len(c.Nodes) == 1 && c.Incarnation == incarnation.String()
	})
	require.Len(t, logged(0, "the cluster was recovered from a lost majority: nodes and clients that know another incarnation are refused; no other node may have been recovered"), 1)
	value, err := alone.client.Get(t.Context(), []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "value of k", string(value))
	putAnywhere(t, []*running{alone}, "new")
	config := testConfig(zap.NewNop(), disks[1])
	config.Cluster, config.ClusterListen = true, "127.0.0.1:0"
	require.ErrorIs(t, Run(t.Context(), config, nil), ErrExpelled)

	// A node that joins has a log that begins before the recovery, and belongs to the new incarnation.
	relay := testrelay.New(t)
	id, fsys := join(t, alone, relay, 0)
	require.Equal(t, incarnation, noted(t, fsys).Incarnation)
	joined, _ := startNode(t, fsys, relay)
	joined.status(func(c *kvd.Cluster) bool {
		return nodeIn(c, id).Voter && calm(c) && c.Incarnation == incarnation.String()
	})
	require.NoError(t, joined.end())
	require.NoError(t, alone.end())

	// The two lose a majority again.
	require.NoError(t, RecoverNode(fsys, "data", func(n descriptor.Node, _ *replica.Recovery) bool {
		require.Equal(t, uint32(2), n.Incarnation.Recoveries)
		return true
	}))
	require.Equal(t, uint32(2), noted(t, fsys).Incarnation.Recoveries)
	require.True(t, errors.Is(RecoverNode(disks[1], "other", nil), fs.ErrNotExist))
}

// A recovery was interrupted before it has noted the incarnation, which the log has: the node notes it
// when it runs.
func TestAnInterruptedRecoveryIsNotedLater(t *testing.T) {
	disks := make([]*vfs.Mem, 3)
	starts, _ := clusterOn(t, disks)
	var nodes []*running
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	nodes[0].status(calm)
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
	before := noted(t, disks[0])
	var told kv.Incarnation
	require.NoError(t, RecoverNode(disks[0], "data", func(n descriptor.Node, _ *replica.Recovery) bool {
		told = n.Incarnation
		return true
	}))
	require.Equal(t, told, noted(t, disks[0]).Incarnation)
	require.NoError(t, vfs.WriteAtomic(disks[0], descriptor.NodePath("data"), before.Encode()))
	alone := starts[0]()
	testwait.Until(t, func() bool { return noted(t, disks[0]).Incarnation == told })
	// A client that met the node before it had applied the recovery in its log keeps to the incarnation
	// before, so this one begins now.
	client, err := kvd.Open(alone.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	c, err := client.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, told.String(), c.Incarnation)
	require.NoError(t, client.Close())
	require.NoError(t, alone.end())
}

// Two nodes were made the only one of their cluster, each by itself, and do not reach each other. They
// have two incarnations, and a client of the one refuses the other one.
func TestTwoRecoveredNodesAreTwoClusters(t *testing.T) {
	disks := make([]*vfs.Mem, 3)
	starts, _ := clusterOn(t, disks)
	var nodes []*running
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	nodes[0].status(calm)
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
	relays := []*testrelay.Relay{testrelay.New(t), testrelay.New(t)}
	client, err := kvd.Open(relays[0].Addr()+","+relays[1].Addr(), kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	var incarnations []string
	for i, disk := range disks[:2] {
		require.NoError(t, RecoverNode(disk, "data", func(descriptor.Node, *replica.Recovery) bool { return true }))
		alone := starts[i]() // the other one does not run, so neither tells the other one to end
		relays[i].To(alone.addr)
		c := alone.status(func(c *kvd.Cluster) bool { return c.Leader == uint64(i+1) })
		incarnations = append(incarnations, c.Incarnation)
		testwait.Until(t, func() bool {
			err = client.Put(t.Context(), []byte("k"), []byte{byte(i)})
			return err == nil || errors.Is(err, kvd.ErrRecovered)
		})
		if i == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, kvd.ErrRecovered)
			for _, known := range incarnations {
				require.ErrorContains(t, err, known)
			}
			_, err := alone.client.Get(t.Context(), []byte("k"))
			require.ErrorIs(t, err, kvd.ErrNotFound)
		}
		require.NoError(t, alone.end())
	}
	require.NotEqual(t, incarnations[0], incarnations[1])
}

// Two nodes were made the only one of their cluster, each by itself, which must not be. The one that
// starts while the other one runs ends.
func TestOfTwoRecoveredNodesOneEnds(t *testing.T) {
	disks := make([]*vfs.Mem, 3)
	starts, _ := clusterOn(t, disks)
	var nodes []*running
	for _, start := range starts {
		nodes = append(nodes, start())
	}
	nodes[0].status(calm)
	for _, r := range nodes {
		require.NoError(t, r.end())
	}
	for _, disk := range disks[:2] {
		require.NoError(t, RecoverNode(disk, "data", func(descriptor.Node, *replica.Recovery) bool { return true }))
	}
	one := starts[0]()
	one.status(func(c *kvd.Cluster) bool { return c.Leader == 1 })
	config := testConfig(zap.NewNop(), disks[1])
	config.Cluster, config.ClusterListen = true, "127.0.0.1:0"
	require.ErrorIs(t, Run(t.Context(), config, nil), ErrExpelled)
	require.NoError(t, one.end())
}
