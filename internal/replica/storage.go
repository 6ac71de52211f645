package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
)

// Position is a place in the history of a group: the state after an entry.
type Position struct {
	Index, Term uint64 // of the entry
	// Conf is the configuration after the entry. It is immutable.
	Conf *pb.ConfState
}

// BootstrapIndex is the index and the term at which the history of a group begins. It is not
// 0, so that a node that joins later, with an empty log, is never sent the entries from the
// first on: the state and the configuration at the beginning are not among them.
const BootstrapIndex = 1

// StateIndex is the index at which the history of a group begins whose first voter has a state
// already: see BootstrapWithState. It is above BootstrapIndex: no log that begins there, without
// that state, goes on with the entries of such a group.
const StateIndex = BootstrapIndex + 1

// BootstrapTerm is the term in which the history of a group begins.
const BootstrapTerm = 1

// fillBytes is how much BootstrapWithState writes at once.
const fillBytes = 1 << 20

// Bootstrap writes the beginning of a group to the empty log of one of its first voters,
// durably, and returns the Position of it. All of them call it with the same voters.
//
// Errors: kv.ErrInvalidArgument if the group has a log already, or there are no voters;
// those of raftlog.Log.Write.
func Bootstrap(log *raftlog.Log, group uint32, voters []uint64) (Position, error) {
	return begin(log, group, BootstrapIndex, voters)
}

// BootstrapWithState writes the beginning of a group to the empty log of its only voter, whose state
// machine has a state already, durably: the group begins at StateIndex and BootstrapTerm, and goes on
// with the records that fill passes to add, which copies them. They count as committed. Other nodes
// are added later, and get the state by a checkpoint.
//
// Errors: those of Bootstrap, of fill and of raftlog.Log.Write. The log must then not be used.
func BootstrapWithState(log *raftlog.Log, group uint32, voter uint64, fill func(add func(record []byte) error) error) error {
	at, err := begin(log, group, StateIndex, []uint64{voter})
	if err != nil {
		return err
	}
	term, last := at.Term, at.Index
	var entries []*pb.Entry
	bytes := 0
	write := func() error {
		if len(entries) == 0 {
			return nil
		}
		err := log.Write(false, raftlog.Update{Group: group, Entries: entries})
		entries, bytes = nil, 0
		return err
	}
	err = fill(func(record []byte) error {
		last++
		index := last
		entries = append(entries, &pb.Entry{Index: &index, Term: &term, Data: encodeEntry(term, record)})
		if bytes += len(record); bytes >= fillBytes {
			return write()
		}
		return nil
	})
	if err == nil {
		err = write()
	}
	if err != nil {
		return err
	}
	return log.Write(true, raftlog.Update{Group: group, HardState: &pb.HardState{Term: &term, Commit: &last}})
}

// begin writes the beginning of a group to an empty log: see Bootstrap.
func begin(log *raftlog.Log, group uint32, at uint64, voters []uint64) (Position, error) {
	g := log.Group(group)
	hard, _, err := g.InitialState()
	if err != nil {
		return Position{}, err
	}
	last, err := g.LastIndex()
	switch {
	case err != nil:
		return Position{}, err
	case last != 0 || !raft.IsEmptyHardState(hard):
		return Position{}, fmt.Errorf("%w: group %d has a log already, which ends at index %d: it cannot begin again", kv.ErrInvalidArgument, group, last)
	case len(voters) == 0:
		return Position{}, fmt.Errorf("%w: group %d has no voters", kv.ErrInvalidArgument, group)
	}
	term, commit := uint64(BootstrapTerm), at
	conf := &pb.ConfState{Voters: voters}
	mark := &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: &at, Term: &term, ConfState: conf}}
	err = log.Write(true, raftlog.Update{Group: group, Snapshot: mark, HardState: &pb.HardState{Term: &term, Commit: &commit}})
	return Position{Index: at, Term: term, Conf: conf}, err
}

// storage is what the library sees of the log: the group as it is when the state machine is
// at a Position.
type storage struct {
	*raftlog.Group
	start Position
	offer func() (*pb.Snapshot, error)
	err   error // of a read of entries
}

// newStorage checks that the state machine can go on from start with this log.
func newStorage(g *raftlog.Group, start Position) (*storage, error) {
	first, err := g.FirstIndex()
	if err != nil {
		return nil, err
	}
	if start.Index+1 < first {
		return nil, damage("the store has applied the log up to index %d, but the log begins at index %d: the entries between are missing", start.Index, first)
	}
	s := &storage{Group: g, start: start}
	if err := s.has(start); err != nil {
		return nil, err
	}
	return s, nil
}

// damage says why a node must not start.
func damage(format string, args ...any) error {
	return fmt.Errorf("%w: %s; this replica must not take part under its id: remove it from the group and add a new one",
		kv.ErrCorrupt, fmt.Sprintf(format, args...))
}

// has checks that the log, if it does not begin after a position, has the entry of that.
func (s *storage) has(at Position) error {
	last, err := s.Group.LastIndex()
	if err != nil {
		return err
	}
	if at.Index > last {
		return damage("the store has applied the log up to index %d, but the log ends at index %d: it has lost entries that were acknowledged", at.Index, last)
	}
	term, err := s.Group.Term(at.Index)
	if err == nil && term != at.Term {
		err = damage("the store has applied index %d of term %d, but the log has term %d there: they are not of the same history", at.Index, at.Term, term)
	}
	return err
}

// reaches checks that the log has the entry of the newest position of a part of the state machine,
// unless that is not above the start.
func (s *storage) reaches(newest Position) error {
	if newest.Index <= s.start.Index {
		return nil
	}
	return s.has(newest)
}

// InitialState returns the configuration of the start, and a commit index that is not below
// it: the hard state is not synced when only its commit index changes.
func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	hard, _, err := s.Group.InitialState()
	if err == nil && hard.GetCommit() < s.start.Index {
		hard = proto.Clone(hard).(*pb.HardState)
		hard.Commit = &s.start.Index
	}
	return hard, proto.Clone(s.start.Conf).(*pb.ConfState), err
}

// Entries keeps an error that means that the log cannot be read: the library would take it
// for entries that were given up.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	entries, err := s.Group.Entries(lo, hi, maxSize)
	if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
		s.err = err
	}
	return entries, err
}

// Snapshot returns the offer of a checkpoint: its data is not the state, but names it.
func (s *storage) Snapshot() (*pb.Snapshot, error) {
	offer, err := s.offer()
	if err != nil && !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		s.err = err
	}
	return offer, err
}
