package replica

import (
	"fmt"
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
)

// Recovery is what PlanRecovery found in the log of a node, and what Recover is to write.
type Recovery struct {
	Term      uint64 // of the newest entry
	Last      uint64 // its index
	Committed uint64 // up to here the node knows entries to be committed; those after it will count as that
	Others    []uint64
	// Unfinished says that the changes which take the others out are in the log, and count as
	// committed only after Recover: an earlier one was interrupted.
	Unfinished bool
	info       []byte
	entries    []*pb.Entry
	term       uint64 // that the node begins with them
}

// PlanRecovery plans how to make a node the only one of its group, after a majority of the others
// was lost for ever. It changes nothing. start and newest are where the state machine stands: see Config.
// info is what the state machines are told with the changes: see StateMachine.Configure.
//
// Everything in the log of the node then counts as committed, and entries after it take the
// other nodes out. What the others had acknowledged, and is not in this log, is lost. If one of
// them comes back with its old log, the two have different histories.
//
// Errors: kv.ErrCorrupt if the log and a Position do not fit together; those of the log.
func PlanRecovery(log *raftlog.Log, group uint32, id uint64, start, newest Position, info string) (*Recovery, error) {
	s, err := newStorage(log.Group(group), start)
	if err == nil {
		err = s.reaches(newest)
	}
	if err != nil {
		return nil, err
	}
	hard, conf, err := s.InitialState()
	if err != nil {
		return nil, err
	}
	last, err := s.LastIndex()
	if err != nil {
		return nil, err
	}
	r := &Recovery{Last: last, Committed: hard.GetCommit(), info: []byte(info)}
	if r.Term, err = s.Term(last); err != nil {
		return nil, err
	}
	committed, err := s.confAfter(conf, start.Index, r.Committed)
	if err != nil {
		return nil, err
	}
	if conf, err = s.confAfter(conf, start.Index, last); err != nil {
		return nil, err
	}
	if !slices.Contains(allOf(conf), id) {
		return nil, fmt.Errorf("%w: node %d is not in the group, as its log says", kv.ErrInvalidArgument, id)
	}
	r.plan(id, conf, hard.GetTerm()+1)
	r.Unfinished = len(r.Others) == 0 && len(allOf(committed)) > 1
	return r, nil
}

// allOf returns all nodes of a configuration, each once.
func allOf(conf *pb.ConfState) []uint64 {
	all := members(conf)
	slices.Sort(all)
	return slices.Compact(all)
}

// confAfter returns the configuration after the entries up to an index.
func (s *storage) confAfter(conf *pb.ConfState, from, to uint64) (*pb.ConfState, error) {
	changes, err := newConfiguration(conf)
	if err != nil {
		return nil, err
	}
	for next := from + 1; next <= to; {
		entries, err := s.Entries(next, to+1, maxMessageBytes)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			change, err := changeOf(e)
			if err != nil {
				return nil, err
			}
			if change != nil {
				conf = changes.ApplyConfChange(change)
			}
		}
		next += uint64(len(entries))
	}
	return conf, nil
}

// newConfiguration returns a node of the library that is there to apply changes to a
// configuration.
func newConfiguration(conf *pb.ConfState) (*raft.RawNode, error) {
	storage := raft.NewMemoryStorage()
	if err := storage.ApplySnapshot(&pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)), ConfState: conf}}); err != nil {
		return nil, err
	}
	return raft.NewRawNode(&raft.Config{
		ID: math.MaxUint32, Storage: storage, Logger: quietLogger{}, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks,
		MaxSizePerMsg: maxMessageBytes, MaxInflightMsgs: maxInflightMessages,
	})
}

// plan makes the entries that leave one node alone: one change each, which needs no majority of
// the configuration before it, as the hard state says that they are committed.
func (r *Recovery) plan(id uint64, conf *pb.ConfState, term uint64) {
	if joint(conf) {
		r.add(term, nil)
	}
	if !slices.Contains(conf.GetVoters(), id) {
		r.add(term, &pb.ConfChangeSingle{Type: pb.ConfChangeAddNode.Enum(), NodeId: &id})
	}
	for _, other := range allOf(conf) {
		if other != id {
			r.Others = append(r.Others, other)
			r.add(term, &pb.ConfChangeSingle{Type: pb.ConfChangeRemoveNode.Enum(), NodeId: &other})
		}
	}
	r.term = term
}

// add adds an entry with a change; nil leaves a joint configuration.
func (r *Recovery) add(term uint64, change *pb.ConfChangeSingle) {
	v2 := &pb.ConfChangeV2{Context: r.info}
	if change != nil {
		v2.Changes = append(v2.Changes, change)
	}
	data, _ := proto.Marshal(v2) // numbers always encode
	index := r.Last + uint64(len(r.entries)) + 1
	r.entries = append(r.entries, &pb.Entry{Index: &index, Term: &term, Type: pb.EntryConfChangeV2.Enum(), Data: data})
}

// Recover writes what was planned, durably: first the changes, and then that all counts as committed.
// If both were one write, a crash could keep the commit index and drop the changes: the node would
// hold for committed what others may have replaced, and nothing would say that it was recovered.
func (r *Recovery) Recover(log *raftlog.Log, group uint32) error {
	err := log.Write(true, raftlog.Update{
		Group: group, Entries: r.entries, HardState: &pb.HardState{Term: &r.term, Commit: &r.Committed},
	})
	if err != nil {
		return err
	}
	all := r.Last + uint64(len(r.entries))
	return log.Write(true, raftlog.Update{Group: group, HardState: &pb.HardState{Term: &r.term, Commit: &all}})
}
