package raftlog

import (
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// FrameInfo describes a whole frame of a segment.
type FrameInfo struct {
	Offset, Bytes int64
	Kind          string
	Group         uint32 // 0 also in frames of no group
	Number        uint64
	// SyncedSegment and SyncedOffset are up to where the log was synced when the frame was laid out.
	SyncedSegment uint64
	SyncedOffset  int64

	// What the frame holds; nil or 0 in one of another kind.
	HardState *pb.HardState
	Snapshot  *pb.SnapshotMetadata
	Conf      string // of the Snapshot, for people
	Installed bool   // the log is empty after the Snapshot
	// CompactedIndex and CompactedTerm are the last entry that is given up.
	CompactedIndex, CompactedTerm uint64
	Entries                       []EntryInfo
}

// EntryInfo is an entry of a frame.
type EntryInfo struct {
	Index, Term uint64
	Type        pb.EntryType
	Data        []byte // borrowed
}

// SegmentInfo describes a segment.
type SegmentInfo struct {
	LogID  uint64 // that the checksums cover
	Num    uint64
	Closed int64 // where the log ended when it was closed, if this was its last segment; 0: it was not
	Bytes  int64 // length of the file
	End    int64 // end of the last whole frame in order
}

// Dump calls fn for every whole frame of a segment, in order, up to the first place without one,
// and describes the segment. It changes nothing, and reads only that file, into memory. Whether
// bytes after the last frame are damage depends on the whole log; see Check.
//
// Errors: that of fn, which ends the dump; a *kv.CorruptionError for a header, or for a frame that
// is whole and makes no sense; kv.ErrUnsupportedVersion; those of the file system.
func Dump(fsys vfs.FS, name string, fn func(FrameInfo) error) (info SegmentInfo, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return SegmentInfo{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return SegmentInfo{}, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return SegmentInfo{}, fmt.Errorf("read %s: %w", name, err)
	}
	h, err := decodeSegmentHeader(name, b)
	if err != nil {
		return SegmentInfo{}, err
	}
	id := logfile.ID{Store: h.Store, Segment: h.Segment}
	info = SegmentInfo{LogID: h.Store, Num: h.Segment, Closed: h.closed, Bytes: size, End: segmentHeaderBytes}
	for info.End < size {
		frame, reason := decodeFrame(b[info.End:], id, info.End)
		if reason != "" {
			break
		}
		whole, err := frame.info()
		if err == nil {
			err = fn(whole)
		} else {
			err = kv.Corruptf(name, frame.off, "%s frame: %v", frame.kind, err)
		}
		if err != nil {
			return info, err
		}
		info.End = frame.end()
	}
	return info, nil
}

// info decodes the payload of a frame.
func (f *frame) info() (i FrameInfo, err error) {
	i = FrameInfo{
		Offset: f.off, Bytes: f.end() - f.off, Kind: f.kind.String(), Group: f.group, Number: f.number,
		SyncedSegment: f.synced.segment, SyncedOffset: f.synced.off,
	}
	switch f.kind {
	case kindHardState:
		i.HardState, err = decodeHardState(f.payload)
	case kindSnapshot:
		var m mark
		m, err = decodeMark(f.payload)
		i.Snapshot = &pb.SnapshotMetadata{Index: &m.index, Term: &m.term, ConfState: m.conf}
		i.Conf, i.Installed = raft.DescribeConfState(m.conf), m.installed
	case kindCompaction:
		i.CompactedIndex, i.CompactedTerm, err = decodeCompaction(f.payload)
	case kindEntries:
		err = decodeEntries(f.payload, func(index, term uint64, kind pb.EntryType, data []byte) {
			i.Entries = append(i.Entries, EntryInfo{index, term, kind, data})
		})
	}
	return i, err
}
