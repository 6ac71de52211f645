package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	segmentMagic       = "kvd.rft\n"
	segmentVersion     = 1
	segmentHeaderBytes = 64
	segmentSuffix      = ".raft"
)

// segmentHeader is the first 64 bytes of a segment.
type segmentHeader struct {
	identity
	closed int64 // the log ended here when it was closed, if this was the last segment; 0: it was not
}

func (h segmentHeader) encode() []byte {
	b := make([]byte, segmentHeaderBytes)
	le := binary.LittleEndian
	copy(b, segmentMagic)
	le.PutUint32(b[8:], segmentVersion)
	le.PutUint64(b[16:], h.store)
	le.PutUint64(b[24:], h.segment)
	le.PutUint64(b[32:], uint64(h.closed))
	le.PutUint32(b[12:], segmentChecksum(b))
	return b
}

func segmentChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:12], castagnoli), castagnoli, b[16:segmentHeaderBytes])
}

// decodeSegmentHeader decodes the header of a segment. The magic, the version and the
// checksum stay in place in every version.
func decodeSegmentHeader(name string, b []byte) (segmentHeader, error) {
	le := binary.LittleEndian
	switch {
	case len(b) < segmentHeaderBytes || string(b[:8]) != segmentMagic:
		return segmentHeader{}, kv.Corruptf(name, 0, "not a segment of a Raft log")
	case le.Uint32(b[12:]) != segmentChecksum(b):
		return segmentHeader{}, kv.Corruptf(name, 0, "segment header fails its checksum")
	case le.Uint32(b[8:]) != segmentVersion:
		return segmentHeader{}, fmt.Errorf("%w: %s has format %d, this kvd knows %d; open it with a newer kvd",
			kv.ErrUnsupportedVersion, name, le.Uint32(b[8:]), segmentVersion)
	}
	h := segmentHeader{identity{le.Uint64(b[16:]), le.Uint64(b[24:])}, int64(le.Uint64(b[32:]))}
	if h.closed < 0 {
		return segmentHeader{}, kv.Corruptf(name, 0, "segment header has impossible fields")
	}
	return h, nil
}

func segmentName(dir string, num uint64) string {
	return path.Join(dir, fmt.Sprintf("%06d%s", num, segmentSuffix))
}

func parseSegmentName(name string) (uint64, bool) {
	digits, found := strings.CutSuffix(name, segmentSuffix)
	num, err := strconv.ParseUint(digits, 10, 64)
	return num, found && err == nil && num > 0 && segmentName("", num) == name
}

// listSegments returns the numbers of the segments in dir, ascending; none if the directory
// does not exist.
func listSegments(fsys vfs.FS, dir string) ([]uint64, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list Raft log: %w", err)
	}
	var nums []uint64
	for _, name := range names {
		if num, ok := parseSegmentName(name); ok {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	return nums, nil
}

// createSegment creates a segment with nothing but its header, durably.
func (l *Log) createSegment(num uint64) (vfs.File, error) {
	f, err := l.opts.FS.Create(segmentName(l.opts.Dir, num))
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(segmentHeader{identity: l.id(num)}.encode(), 0)
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

func (l *Log) id(num uint64) identity { return identity{l.opts.StoreID, num} }
