package replicated

import (
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/replica"
)

// Convert makes the store of a single node in dir, which no process has open, the first node of a
// new cluster, and its only voter: see engine.ConvertToMember.
//
// Errors: kv.ErrInvalidArgument if the node has other members; those of engine.ConvertToMember.
func Convert(dir string, o engine.Options, node descriptor.Node) error {
	if err := node.Check(); err != nil {
		return err
	}
	if len(node.Members) != 1 {
		return fmt.Errorf("%w: a store with data becomes the only member of a new cluster, and not one of %d: the others join it, and get its data then", kv.ErrInvalidArgument, len(node.Members))
	}
	return engine.ConvertToMember(dir, o, node, conversion(node))
}

// conversion is the node that a store becomes. It implements engine.FirstLog.
type conversion descriptor.Node

var _ engine.FirstLog = conversion{}

// Begin implements engine.FirstLog.
func (c conversion) Begin(seq kv.SeqNum, time uint64) (engine.Position, error) {
	first := firstConfiguration(&pb.ConfState{Voters: []uint64{c.Node}}, c.Members)
	first.First = nil // G3: nodes that join begin with nothing
	conf, err := first.encode()
	return engine.Position{Index: replica.StateIndex, Term: replica.BootstrapTerm, Seq: seq, Time: time, Conf: conf}, err
}

// Create implements engine.FirstLog.
func (c conversion) Create(f engine.LogFiles, fill func(add func(record []byte) error) error) error {
	node := descriptor.Node(c)
	log, _, err := raftlog.Open(raftlog.Options{FS: f.FS, Dir: f.Dir, StoreID: node.LogID(), SegmentBytes: f.SegmentBytes, Fresh: f.Created})
	if err != nil {
		return err
	}
	return errors.Join(replica.BootstrapWithState(log, Group, c.Node, fill), log.Close())
}
