package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	segmentMagic       = logfile.ReplicatedMagic
	segmentVersion     = logfile.NewestReplicatedFormat
	segmentHeaderBytes = 64
)

// segmentHeader is the first 64 bytes of a segment.
type segmentHeader struct {
	logfile.ID
	closed int64 // the log ended here when it was closed, if this was the last segment; 0: it was not
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, segmentHeaderBytes)
	le := binary.LittleEndian
	copy(b, segmentMagic)
	le.PutUint32(b[8:], segmentVersion)
	le.PutUint64(b[16:], h.Store)
	le.PutUint64(b[24:], h.Segment)
	le.PutUint64(b[32:], uint64(h.closed))
	le.PutUint32(b[12:], logfile.HeaderChecksum(b[:segmentHeaderBytes]))
	return b
}

// decodeSegmentHeader decodes the header of a segment. The magic, the version and the
// checksum stay in place in every version.
func decodeSegmentHeader(name string, b []byte) (segmentHeader, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < segmentHeaderBytes || string(b[:8]) != segmentMagic:
		return segmentHeader{}, kv.Corruptf(name, 0, "not a segment of a Raft log")
	case le.Uint32(b[12:]) != logfile.HeaderChecksum(b[:segmentHeaderBytes]):
		return segmentHeader{}, kv.Corruptf(name, 0, "segment header fails its checksum")
	case le.Uint32(b[8:]) != segmentVersion:
		return segmentHeader{}, fmt.Errorf("%w: %s has format %d, this kvd knows %d; open it with a newer kvd",
			kv.ErrUnsupportedVersion, name, le.Uint32(b[8:]), segmentVersion)
	}
	h := segmentHeader{logfile.ID{Store: le.Uint64(b[16:]), Segment: le.Uint64(b[24:])}, int64(le.Uint64(b[32:]))}
	if h.closed < 0 {
		return segmentHeader{}, kv.Corruptf(name, 0, "segment header has impossible fields")
	}
	return h, nil
}

const segmentSuffix logfile.Suffix = ".raft"

func segmentName(dir string, num uint64) string { return segmentSuffix.Path(dir, num) }

// listSegments returns the numbers of the segments in dir, ascending; none if the directory
// does not exist.
func listSegments(fsys vfs.FS, dir string) ([]uint64, error) {
	nums, err := segmentSuffix.List(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("list Raft log: %w", err)
	}
	return nums, nil
}

// createSegment creates a segment with nothing but its header, durably.
func (l *Log) createSegment(num uint64) (vfs.File, error) {
	f, err := l.opts.FS.Create(segmentName(l.opts.Dir, num))
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(segmentHeader{ID: l.id(num)}.encode(), 0)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.opts.FS.SyncDir(l.opts.Dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (l *Log) id(num uint64) logfile.ID { return logfile.ID{Store: l.opts.StoreID, Segment: num} }
