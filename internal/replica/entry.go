package replica

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

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

// Contents is what an entry holds: a record, a change of the configuration, or nothing, as the first
// entry of a term.
type Contents struct {
	// Term is the one in which the record was numbered. If the entry is of another one, every node
	// skips it.
	Term   uint64
	Record []byte // borrows the data of the entry
	Change *pb.ConfChangeV2
}

// ContentsOf returns what an entry holds.
//
// Errors: kv.ErrUnsupportedVersion, kv.ErrCorrupt.
func ContentsOf(e *pb.Entry) (c Contents, err error) {
	switch {
	case e.GetType() != pb.EntryNormal:
		c.Change, err = changeOf(e)
	case len(e.GetData()) > 0:
		c.Term, c.Record, err = decodeEntry(e.GetData())
	}
	return c, err
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
