package workload

import (
	"encoding/binary"
	"fmt"
)

// MinRecordBytes is the length of the verifiable part of a record: that of any value,
// followed by
//
//	u64 changes: how often a read-modify-write changed the record
//
// If two changes both read the same state of a record, its count is too small by one: a
// lost update shows as long as the record lives.
const MinRecordBytes = MinValueBytes + 8

// fillRecord makes dst the value of a record. random selects its random bytes.
func (p *valuePool) fillRecord(dst []byte, id uint64, v version, changes, random uint64) {
	copy(dst[MinRecordBytes:], p.random[random%poolBytes:])
	binary.LittleEndian.PutUint64(dst[MinValueBytes:], changes)
	seal(dst, id, v)
}

// checkRecord returns the contents of a value that was read for a record, or an error
// if it cannot be a value of that record.
func checkRecord(value []byte, id uint64) (v version, changes uint64, err error) {
	if v, err = checkValue(value, id, recordName); err != nil {
		return 0, 0, err
	}
	if len(value) < MinRecordBytes {
		return 0, 0, fmt.Errorf("%w: %s has a value of %d bytes; every record has at least %d",
			ErrWrongAnswer, recordName(id), len(value), MinRecordBytes)
	}
	return v, binary.LittleEndian.Uint64(value[MinValueBytes:]), nil
}
