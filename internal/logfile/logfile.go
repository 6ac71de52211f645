// Package logfile has what the segments of the commit log (wal) and of the Raft log (raftlog)
// have in common: their names, and the checksum that binds a frame to its place.
package logfile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Suffix ends the names of the segments of one log. A segment's name is its number, from 1 on,
// with at least six digits, and the suffix.
type Suffix string

// Path returns the path of a segment.
func (s Suffix) Path(dir string, segment uint64) string {
	return path.Join(dir, s.name(segment))
}

// leastDigits is how many digits the name of a segment has, or more if its number does.
const leastDigits = "000000"

// name returns the name of a segment.
func (s Suffix) name(segment uint64) string {
	digits := strconv.FormatUint(segment, 10)
	return leastDigits[min(len(digits), len(leastDigits)):] + digits + string(s)
}

// Parse returns the number in the name of a segment; ok is false if Path returns no such name.
func (s Suffix) Parse(name string) (segment uint64, ok bool) {
	digits, found := strings.CutSuffix(name, string(s))
	segment, err := strconv.ParseUint(digits, 10, 64)
	return segment, found && err == nil && segment > 0 && s.name(segment) == name
}

// List returns the numbers of the segments in a directory, ascending; none if it does not exist.
// It ignores other files.
func (s Suffix) List(fsys vfs.FS, dir string) (segments []uint64, err error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if segment, ok := s.Parse(name); ok {
			segments = append(segments, segment)
		}
	}
	slices.Sort(segments)
	return segments, nil
}

// ID is the segment that a frame belongs to.
type ID struct {
	Store   uint64 // id of the store
	Segment uint64
}

// Checksum returns the CRC-32C of a frame's header without its first bytes, of the segment that
// the frame belongs to and of its offset there: a frame of another store, segment or offset is
// invalid.
func (id ID) Checksum(off int64, header []byte) uint32 {
	var place [24]byte
	le := binary.LittleEndian
	le.PutUint64(place[0:], id.Store)
	le.PutUint64(place[8:], id.Segment)
	le.PutUint64(place[16:], uint64(off))
	return crc32.Update(crc32.Checksum(place[:], castagnoli), castagnoli, header)
}

// HeaderChecksum returns the CRC-32C of a segment's header without bytes 12 to 15, which hold it.
func HeaderChecksum(header []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:12], castagnoli), castagnoli, header[16:])
}

// Sum returns the CRC-32C of b.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
