package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/raftlog"
)

const (
	entryVersion     = 1
	entryHeaderBytes = 9

	// MaxRecordBytes bounds a record.
	MaxRecordBytes = raftlog.MaxEntryBytes - entryHeaderBytes
)

// encodeEntry returns the data of the entry of a record that was numbered in a term.
func encodeEntry(term uint64, record []byte) []byte {
	b := make([]byte, 0, entryHeaderBytes+len(record))
	b = append(b, entryVersion)
	b = binary.LittleEndian.AppendUint64(b, term)
	return append(b, record...)
}

// decodeEntry is the inverse of encodeEntry. The record borrows data.
func decodeEntry(data []byte) (term uint64, record []byte, err error) {
	if len(data) > 0 && data[0] != entryVersion {
		return 0, nil, fmt.Errorf("%w %d of an entry; this kvd knows %d: use a newer kvd", kv.ErrUnsupportedVersion, data[0], entryVersion)
	}
	if len(data) <= entryHeaderBytes {
		return 0, nil, fmt.Errorf("%w: an entry has %d bytes, which is too short", kv.ErrCorrupt, len(data))
	}
	return binary.LittleEndian.Uint64(data[1:]), data[entryHeaderBytes:], nil
}
