package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// entry is a record as the log of a cluster holds it: what the log of a single node keeps
// beside a record is in it. The layout, with numbers little-endian:
//
//	0   1  format version: 1, and 2 of a kind that version 1 does not have
//	1   1  kind: 1 writes, 2 time; of version 2: 3 compare
//	2   8  first number
//	10  4  commit units
//	14     writes: the record, as in package record; time: u64 Unix milliseconds; compare: nothing
//
// A node that meets a version that it does not know stops: it would come to another state.
type entry struct {
	kind    entryKind
	base    kv.SeqNum
	units   uint32
	payload []byte // of writes
	time    uint64
}

type entryKind uint8

const (
	entryWrites entryKind = 1
	entryTime   entryKind = 2 // the store's clock is at this time from its number on

	// entryCompare asks all nodes for a digest of their state at its number.
	entryCompare entryKind = 3

	entryVersion     = 2 // the newest
	entryHeaderBytes = 14
)

// last returns the newest number of the entry.
func (e *entry) last() kv.SeqNum { return e.base + kv.SeqNum(e.units) - 1 }

func (e *entry) encode() []byte {
	b := make([]byte, 0, entryHeaderBytes+max(len(e.payload), 8))
	b = append(b, e.kind.version(), byte(e.kind))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.base))
	b = binary.LittleEndian.AppendUint32(b, e.units)
	if e.kind == entryTime {
		return binary.LittleEndian.AppendUint64(b, e.time)
	}
	return append(b, e.payload...)
}

// LogRecord is a record of the log of a cluster, for tools.
type LogRecord struct {
	Kind  string    // "writes", "time" or "compare"
	First kv.SeqNum // number of the first commit unit
	Units uint32
	// Writes are in the form of package record, and borrow the record; nil in other kinds.
	Writes []byte
	Time   uint64 // Unix milliseconds; 0 in other kinds
}

// DecodeLogRecord decodes a record of the log of a cluster.
//
// Errors: kv.ErrUnsupportedVersion, kv.ErrCorrupt.
func DecodeLogRecord(b []byte) (LogRecord, error) {
	e, err := decodeEntry(b)
	if err != nil {
		return LogRecord{}, err
	}
	kinds := map[entryKind]string{entryWrites: "writes", entryTime: "time", entryCompare: "compare"}
	return LogRecord{Kind: kinds[e.kind], First: e.base, Units: e.units, Writes: e.payload, Time: e.time}, nil
}

// version returns the format version of entries of a kind.
func (k entryKind) version() byte {
	if k <= entryTime {
		return 1
	}
	return 2
}

// decodeEntry is the inverse of encode. The payload borrows b.
func decodeEntry(b []byte) (e entry, err error) {
	if len(b) > 0 && (b[0] == 0 || b[0] > entryVersion) {
		return e, fmt.Errorf("%w %d of a record of the cluster; this kvd knows 1 to %d: use a newer kvd", kv.ErrUnsupportedVersion, b[0], entryVersion)
	}
	if len(b) < entryHeaderBytes {
		return e, fmt.Errorf("%w: a record of the cluster has %d bytes, want at least %d", kv.ErrCorrupt, len(b), entryHeaderBytes)
	}
	e.kind, e.payload = entryKind(b[1]), b[entryHeaderBytes:]
	e.base, e.units = kv.SeqNum(binary.LittleEndian.Uint64(b[2:])), binary.LittleEndian.Uint32(b[10:])
	switch {
	case b[0] != e.kind.version():
		return e, fmt.Errorf("%w: a record of the cluster has version %d and kind %d", kv.ErrCorrupt, b[0], e.kind)
	case e.units == 0 || e.base == 0 || e.base > kv.MaxSeqNum-kv.SeqNum(e.units):
		return e, fmt.Errorf("%w: a record of the cluster has %d units from number %d on", kv.ErrCorrupt, e.units, e.base)
	case e.kind == entryTime && e.units == 1 && len(e.payload) == 8:
		e.time, e.payload = binary.LittleEndian.Uint64(e.payload), nil
	case e.kind == entryCompare && e.units == 1 && len(e.payload) == 0:
		e.payload = nil
	case e.kind != entryWrites:
		return e, fmt.Errorf("%w: a record of the cluster has kind %d, %d units and %d bytes", kv.ErrCorrupt, e.kind, e.units, len(e.payload))
	}
	return e, nil
}
