package raftlog

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
)

// Group is the log of one Raft group. It implements [raft.Storage]. Like its Log it is for one
// goroutine.
//
//	I1. ents are the entries from index first on without a gap, and offset+1 == first,
//	    except during recovery.
//	I2. cache holds the last entries of ents.
type Group struct {
	log  *Log
	id   uint32
	hard *pb.HardState
	mark mark

	offset, offsetTerm uint64 // entries up to this index are given up; its term
	first              uint64 // index of ents[0]
	ents               []place
	cache              []*pb.Entry
}

// place says where an entry is: in which frame.
type place struct {
	term uint64
	at   address
}

var _ raft.Storage = (*Group)(nil)

// Group returns the group of that number; an empty one if the log has none.
func (l *Log) Group(id uint32) *Group {
	g := l.groups[id]
	if g == nil {
		g = &Group{log: l, id: id, hard: &pb.HardState{}, mark: mark{conf: &pb.ConfState{}}, first: 1}
		l.groups[id] = g
		l.order = append(l.order, g)
		slices.SortFunc(l.order, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	}
	return g
}

func markOf(s *pb.Snapshot) mark {
	m := s.GetMetadata()
	conf := m.GetConfState()
	if conf == nil {
		conf = &pb.ConfState{}
	}
	return mark{installed: true, index: m.GetIndex(), term: m.GetTerm(), conf: proto.Clone(conf).(*pb.ConfState)}
}

func appendIndex(b []byte, index uint64) []byte { return binary.LittleEndian.AppendUint64(b, index) }

// last is the index of the last entry; offset if there is none.
func (g *Group) last() uint64 { return g.first + uint64(len(g.ents)) - 1 }

// place notes where the entries of a frame are. They replace all from their first on (R5).
func (g *Group) place(payload []byte, at address) {
	index := max(binary.LittleEndian.Uint64(payload), g.offset+1)
	g.cutFrom(max(index, g.first))
	g.first = min(g.first, index) // lower only in recovery, of a log whose older segments are gone
	_ = decodeEntries(payload, func(i, term uint64, _ pb.EntryType, _ []byte) {
		if i >= index {
			g.ents = append(g.ents, place{term, at})
		}
	})
}

// cutFrom drops the entries from that index on, and with them everything above in the cache.
func (g *Group) cutFrom(index uint64) {
	if index > g.last() {
		return
	}
	for len(g.cache) > 0 && g.cache[len(g.cache)-1].GetIndex() >= index {
		g.log.cached -= int64(len(g.cache[len(g.cache)-1].GetData()))
		g.cache[len(g.cache)-1] = nil
		g.cache = g.cache[:len(g.cache)-1]
	}
	g.ents = g.ents[:index-g.first]
}

// install empties the log after a snapshot.
func (g *Group) install(m mark) {
	m.installed = false // a restatement of it empties nothing
	g.mark = m
	g.offset, g.offsetTerm = m.index, m.term
	g.cutFrom(g.first)
	g.first, g.ents = m.index+1, nil
}

// compact drops the entries up to index.
func (g *Group) compact(index, term uint64) {
	g.offset, g.offsetTerm = index, term
	n := min(index+1-min(g.first, index+1), uint64(len(g.ents)))
	g.ents = slices.Clone(g.ents[n:])
	g.first = max(g.first, index+1)
	for len(g.cache) > 0 && g.cache[0].GetIndex() <= index {
		g.uncache()
	}
}

// uncache drops the oldest entry of the cache.
func (g *Group) uncache() {
	g.log.cached -= int64(len(g.cache[0].GetData()))
	g.cache[0] = nil
	g.cache = g.cache[1:]
}

// cacheEntries keeps entries that were just placed.
func (g *Group) cacheEntries(entries []*pb.Entry) {
	for _, e := range entries {
		g.cache = append(g.cache, e)
		g.log.cached += int64(len(e.GetData()))
	}
}

// trimCaches drops the oldest cached entries of the groups in turn until they are within
// the bound.
func (l *Log) trimCaches() {
	for dropped := true; dropped && l.cached > l.opts.CacheBytes; {
		dropped = false
		for _, g := range l.order {
			if len(g.cache) > 1 {
				g.uncache()
				dropped = true
			}
		}
	}
}

// InitialState implements raft.Storage.
func (g *Group) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return g.hard, proto.Clone(g.mark.conf).(*pb.ConfState), g.log.usable()
}

// FirstIndex implements raft.Storage.
func (g *Group) FirstIndex() (uint64, error) { return g.offset + 1, g.log.usable() }

// LastIndex implements raft.Storage.
func (g *Group) LastIndex() (uint64, error) { return g.last(), g.log.usable() }

// Term implements raft.Storage.
func (g *Group) Term(index uint64) (uint64, error) {
	switch {
	case index < g.offset:
		return 0, raft.ErrCompacted
	case index == g.offset:
		return g.offsetTerm, nil
	case index > g.last():
		return 0, raft.ErrUnavailable
	}
	return g.ents[index-g.first].term, nil
}

// Snapshot implements raft.Storage. The snapshot has no data.
func (g *Group) Snapshot() (*pb.Snapshot, error) {
	index, term := g.mark.index, g.mark.term
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		Index: &index, Term: &term, ConfState: proto.Clone(g.mark.conf).(*pb.ConfState),
	}}, g.log.usable()
}

// Entries implements raft.Storage. Entries that are not in the cache are read from the disk,
// a frame at a time.
//
// Errors, besides those of raft.Storage: a *kv.CorruptionError if an entry cannot be read.
func (g *Group) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	switch err := g.log.usable(); {
	case err != nil:
		return nil, err
	case lo <= g.offset:
		return nil, raft.ErrCompacted
	case hi > g.last()+1 || len(g.ents) == 0:
		return nil, raft.ErrUnavailable
	}
	t := taken{max: maxSize}
	cached := g.last() + 1 - uint64(len(g.cache))
	for lo < min(hi, cached) && !t.full {
		next, err := g.readFrame(lo, min(hi, cached), &t)
		if err != nil {
			return nil, err
		}
		lo = next
	}
	for ; lo < hi && !t.full; lo++ {
		t.add(g.cache[lo-cached])
	}
	return t.entries, nil
}

// taken collects entries up to a size: at least one, as raft.Storage wants it.
type taken struct {
	entries []*pb.Entry
	size    uint64
	max     uint64
	full    bool
}

func (t *taken) add(e *pb.Entry) {
	t.size += uint64(proto.Size(e))
	if t.full = t.full || len(t.entries) > 0 && t.size > t.max; !t.full {
		t.entries = append(t.entries, e)
	}
}

// placedEntry is an entry that was read from the disk, with what it points to: one allocation, not four.
type placedEntry struct {
	pb.Entry
	index, term uint64
	kind        pb.EntryType
}

// readFrame adds the entries from lo on, and below hi, of the frame that holds lo. It returns
// the index after them.
func (g *Group) readFrame(lo, hi uint64, t *taken) (uint64, error) {
	at := g.ents[lo-g.first].at
	file := g.log.files[at.segment]
	name := func() string { return segmentName(g.log.opts.Dir, at.segment) }
	var head [frameHeaderBytes]byte
	if _, err := file.ReadAt(head[:], at.off); err != nil {
		return 0, fmt.Errorf("read %s at offset %d: %w", name(), at.off, err)
	}
	_, n, _, reason := decodeHeader(head[:], g.log.id(at.segment), at.off)
	if reason != "" || n > maxPayloadBytes {
		return 0, kv.Corruptf(name(), at.off, "%s, but there was a frame when the log was opened", cmp.Or(reason, "length"))
	}
	b := make([]byte, frameBytes(int(n)))
	if _, err := file.ReadAt(b, at.off); err != nil {
		return 0, fmt.Errorf("read %s at offset %d: %w", name(), at.off, err)
	}
	f, reason := decodeFrame(b, g.log.id(at.segment), at.off)
	if reason != "" || f.kind != kindEntries || f.group != g.id {
		return 0, kv.Corruptf(name(), at.off, "%s, but there were entries when the log was opened", cmp.Or(reason, f.kind.String()))
	}
	next := lo
	err := decodeEntries(f.payload, func(index, term uint64, kind pb.EntryType, data []byte) {
		if index == next && index < hi && g.ents[index-g.first] == (place{term, at}) {
			e := &placedEntry{index: index, term: term, kind: kind}
			e.Index, e.Term, e.Type, e.Data = &e.index, &e.term, &e.kind, data
			t.add(&e.Entry)
			next++
		}
	})
	if err != nil || next == lo {
		return 0, kv.Corruptf(name(), at.off, "entry %d is not in its frame: %v", lo, err)
	}
	return next, nil
}

type entryType = pb.EntryType

// lastTerm is the term of the last entry.
func (g *Group) lastTerm() uint64 {
	if n := len(g.ents); n > 0 {
		return g.ents[n-1].term
	}
	return g.offsetTerm
}

// withCommit returns a hard state with another commit index.
func withCommit(h *pb.HardState, commit uint64) *pb.HardState {
	if h.GetCommit() == commit {
		return h
	}
	term, vote := h.GetTerm(), h.GetVote()
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}
