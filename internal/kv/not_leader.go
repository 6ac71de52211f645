package kv

import (
	"errors"
	"fmt"
)

// ErrNotLeader: the node takes no writes now, since it does not lead its cluster; nothing was
// done. See NotLeaderError. An error that is ErrUncertain too is about a write that may have
// happened.
var ErrNotLeader = errors.New("not the leader")

// NotLeaderError refuses a write on a node that does not lead. errors.Is(err, ErrNotLeader)
// holds for it.
type NotLeaderError struct {
	Leader uint64 // id of the node that leads, as far as this one knows; 0: none is known
	// Address is where clients reach that node; empty: it is not known.
	Address string
	// Unreachable: this node wanted to forward the write to that node, and could not.
	Unreachable bool
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return "this node does not lead the cluster, and knows no leader: try again, or on another node"
	}
	text := fmt.Sprintf("this node does not lead the cluster: write to node %d", e.Leader)
	if e.Address != "" {
		text += " at " + e.Address
	}
	if e.Unreachable {
		text += ", which does not answer this one"
	}
	return text
}

// Is makes every NotLeaderError match ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }
