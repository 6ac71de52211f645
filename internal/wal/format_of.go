package wal

import (
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
)

// Versions of the format of segments that this package reads. It writes the newest.
const (
	OldestFormat = oldestVersion
	NewestFormat = segmentVersion
)

// HeadBytes is how much of a segment FormatOf needs, in any version.
const HeadBytes = segmentHeaderBytes

// FormatOf returns the format version of a segment, which may be one that this package does
// not know. head is the beginning of the file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no segment.
func FormatOf(name string, head []byte) (uint32, error) {
	le := binary.LittleEndian
	switch {
	case len(head) < segmentHeaderBytes:
		return 0, kv.Corruptf(name, 0, "segment header has only %d bytes", len(head))
	case string(head[:8]) != segmentMagic:
		return 0, kv.Corruptf(name, 0, "not a commit log segment: wrong magic")
	case le.Uint32(head[12:]) != logfile.HeaderChecksum(head[:segmentHeaderBytes]):
		return 0, kv.Corruptf(name, 0, "segment header fails its checksum")
	case le.Uint32(head[8:]) == 0:
		return 0, kv.Corruptf(name, 8, "format version is 0")
	}
	return le.Uint32(head[8:]), nil
}
