package replicated

import (
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
)

var _ inspect.LogDump = DumpLog

// DumpLog prints the frames of a segment of the log of a node, with their entries: it is an
// inspect.LogDump.
//
// Errors: those of raftlog.Dump; kv.ErrUnsupportedVersion and kv.ErrCorrupt for an entry.
func DumpLog(fsys vfs.FS, name string, p inspect.Printer) error {
	// raftlog.Dump returns the header at the end, but it is printed first.
	info, err := raftlog.Dump(fsys, name, func(raftlog.FrameInfo) error { return nil })
	if err != nil && info.Num == 0 {
		return err
	}
	p.Printf("segment %d of the log of a node of a cluster, log id %016x\n", info.Num, info.LogID)
	p.Printf("  bytes     %d, whole frames up to %d\n", info.Bytes, info.End)
	if info.Closed != 0 {
		p.Printf("  closed    in order, at %d\n", info.Closed)
	}
	if _, err := raftlog.Dump(fsys, name, func(f raftlog.FrameInfo) error { return dumpFrame(name, p, f) }); err != nil {
		return err
	}
	if info.End < info.Bytes {
		p.Printf("%d: no whole frame here; the %d bytes from here on are not printed, and kvd check tells whether they are damage\n", info.End, info.Bytes-info.End)
	}
	return nil
}

func dumpFrame(name string, p inspect.Printer, f raftlog.FrameInfo) error {
	p.Printf("%d: %s frame, number %d, %d bytes, log synced up to %d:%d\n", f.Offset, f.Kind, f.Number, f.Bytes, f.SyncedSegment, f.SyncedOffset)
	switch h := f.HardState; {
	case h != nil:
		p.Printf("  term %d, vote for node %d, committed up to %d\n", h.GetTerm(), h.GetVote(), h.GetCommit())
	case f.Snapshot != nil:
		after := ""
		if f.Installed {
			after = "; the log is empty after it"
		}
		p.Printf("  begins after entry %d of term %d, %s%s\n", f.Snapshot.GetIndex(), f.Snapshot.GetTerm(), f.Conf, after)
	case f.CompactedIndex != 0:
		p.Printf("  given up to entry %d of term %d\n", f.CompactedIndex, f.CompactedTerm)
	}
	for _, e := range f.Entries {
		text, r, err := describeEntry(e)
		if err != nil {
			return fmt.Errorf("%s: frame at offset %d: entry %d of term %d: %w", name, f.Offset, e.Index, e.Term, err)
		}
		p.Printf("  entry %d of term %d, %d bytes: %s\n", e.Index, e.Term, len(e.Data), text)
		if r.Writes != nil {
			if err := p.Record(f.Offset, r.First, r.Writes); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeEntry says what an entry holds, and returns its record, if it has one.
func describeEntry(e raftlog.EntryInfo) (text string, r engine.LogRecord, err error) {
	c, err := replica.ContentsOf(&pb.Entry{Index: &e.Index, Term: &e.Term, Type: &e.Type, Data: e.Data})
	switch {
	case err != nil:
		return "", r, err
	case c.Change != nil:
		text, err = describeChange(c.Change)
		return text, r, err
	case c.Record == nil:
		return "nothing: the first entry of a term", r, nil
	}
	if r, err = engine.DecodeLogRecord(c.Record); err != nil {
		return "", r, err
	}
	switch {
	case r.Writes != nil:
		text = fmt.Sprintf("%s: record %d, %d units", r.Kind, r.First, r.Units)
	case r.Time != 0:
		text = fmt.Sprintf("%s: the clock of the store is at %s, number %d", r.Kind, time.UnixMilli(int64(r.Time)).UTC().Format(time.RFC3339Nano), r.First)
	default: // "time" of a leader that leaves the clock as it is, and "compare"
		text = fmt.Sprintf("%s: number %d", r.Kind, r.First)
	}
	if c.Term != e.Term {
		text += fmt.Sprintf("; numbered in term %d: every node skips it", c.Term)
	}
	return text, r, nil
}

// describeChange says what a change of the configuration does, and what it tells of a node.
func describeChange(change *pb.ConfChangeV2) (string, error) {
	text := "configuration:"
	for _, c := range change.GetChanges() {
		text += fmt.Sprintf(" %s node %d,", changeNames[c.GetType()], c.GetNodeId())
	}
	if len(change.GetChanges()) == 0 {
		text += " the change before it is complete,"
	}
	info := string(change.GetContext())
	recovered, err := decodeRecovered(info)
	if err != nil {
		return "", err
	}
	if recovered != (kv.Incarnation{}) {
		return fmt.Sprintf("%s recovery from a lost majority: incarnation %s", text, recovered), nil
	}
	id, n, err := decodeInfo(info)
	if err != nil {
		return "", err
	}
	if id != 0 {
		text += fmt.Sprintf(" node %d is at %s, for clients at %s, data directory %016x,", id, escape.Quote([]byte(n.Peer)), escape.Quote([]byte(n.Client)), n.Store)
	}
	if n.Replaces != 0 {
		text += fmt.Sprintf(" it replaces node %d,", n.Replaces)
	}
	return strings.TrimSuffix(text, ","), nil
}

var changeNames = map[pb.ConfChangeType]string{
	pb.ConfChangeAddNode: "voter", pb.ConfChangeAddLearnerNode: "learner", pb.ConfChangeRemoveNode: "remove", pb.ConfChangeUpdateNode: "update",
}
