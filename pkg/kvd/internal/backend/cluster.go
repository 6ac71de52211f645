package backend

import "time"

// Cluster describes a cluster as one of its nodes sees it.
type Cluster struct {
	ID          uint64
	Incarnation string
	Node        uint64 // that describes it
	Leader      uint64 // 0: none is known
	Term        uint64
	Committed   uint64        // index
	Nodes       []ClusterNode // in the order of their ids
}

// ClusterNode describes a node of a cluster.
type ClusterNode struct {
	ID              uint64
	Client, Peer    string // addresses
	Voter           bool
	Answers         bool
	Version         string
	Applied, Lag    uint64
	Silent          time.Duration // negative: not known
	Streams         string
	NeedsCheckpoint bool
	Started         bool
	Replaces        uint64
}

// AddedNode is what a new node starts with.
type AddedNode struct {
	Cluster, ID uint64
	Incarnation string
	Partitions  int
	Members     map[uint64]string
	First       []uint64
}
