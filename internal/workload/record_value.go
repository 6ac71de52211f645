package workload

import (
	"encoding/binary"
	"fmt"
)

// MinRecordBytes is the length of the part of a record that makes it verifiable:
// that of any value, and behind it
//
//	u64 changes: how often a read-modify-write changed the record
//
// Two changes that both read the same record leave a count that is too small by
// one: a lost update shows for as long as the record lives.
const MinRecordBytes = MinValueBytes + 8

// fillRecord makes dst the value of a record, given a random number.
func (p *valuePool) fillRecord(dst []byte, id uint64, v version, changes, random uint64) {
	copy(dst[MinRecordBytes:], p.random[random%poolBytes:])
	binary.LittleEndian.PutUint64(dst[MinValueBytes:], changes)
	seal(dst, id, v)
}

// checkRecord returns what a value that was read for a record says, or why it
// cannot be a value of that record.
func checkRecord(value []byte, id uint64) (v version, changes uint64, err error) {
	if v, err = checkValue(value, id); err != nil {
		return 0, 0, err
	}
	if len(value) < MinRecordBytes {
		return 0, 0, fmt.Errorf("%w: record %d has a value of %d bytes; every record has at least %d",
			ErrWrongAnswer, id, len(value), MinRecordBytes)
	}
	return v, binary.LittleEndian.Uint64(value[MinValueBytes:]), nil
}
