package logfile

import (
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// The segments of the log of a cluster, as far as those need to know them that do not know the
// consensus: package raftlog has the format.
const (
	ReplicatedMagic        = "kvd.rft\n"
	OldestReplicatedFormat = 1
	NewestReplicatedFormat = 1
	// ReplicatedHeadBytes is how much of a segment ReplicatedFormatOf needs, in any version.
	ReplicatedHeadBytes = 64
)

// ReplicatedFormatOf returns the format version of a segment of the log of a cluster, which may be
// one that this kvd does not know. head is the beginning of the file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no such segment.
func ReplicatedFormatOf(name string, head []byte) (uint32, error) {
	le := binary.LittleEndian
	switch {
	case len(head) < ReplicatedHeadBytes || string(head[:8]) != ReplicatedMagic:
		return 0, kv.Corruptf(name, 0, "not a segment of the log of a cluster")
	case le.Uint32(head[12:]) != HeaderChecksum(head[:ReplicatedHeadBytes]):
		return 0, kv.Corruptf(name, 0, "segment header fails its checksum")
	case le.Uint32(head[8:]) == 0:
		return 0, kv.Corruptf(name, 8, "format version is 0")
	}
	return le.Uint32(head[8:]), nil
}
