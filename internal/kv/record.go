package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// RecordEncoder lays out one record of the commit log:
//
//	record  = section, one or more
//	section = uvarint partition | uvarint operations (>= 1) | op ...
//	op      = u8 tag | uvarint unit
//	          | u64 client id, uvarint client sequence   if tag & 0x20
//	          | uvarint key length | key
//	          | uvarint value length | value             if put or range delete
//	          | uvarint expiry                           if tag & 0x10
//	tag     = kind in the low 4 bits, flags above
//
// Numbers are little-endian. A unit is what shares one sequence number: the
// number of an operation is the record's first number, which the log keeps
// beside the record, plus its unit. Sections of one record name different
// partitions. The log's frame has the checksum; the record has none.
//
// The zero value is ready. Not safe for concurrent use.
type RecordEncoder struct {
	buf []byte
}

const (
	recordHasExpiry = 0x10
	recordHasOrigin = 0x20
	recordKindMask  = 0x0f
)

// Reset empties the encoder and keeps its memory.
func (e *RecordEncoder) Reset() { e.buf = e.buf[:0] }

// Bytes returns the record, borrowed until the next call on e.
func (e *RecordEncoder) Bytes() []byte { return e.buf }

// Section begins the operations of one partition; exactly ops calls of Op
// follow.
func (e *RecordEncoder) Section(partition, ops int) {
	e.buf = binary.AppendUvarint(e.buf, uint64(partition))
	e.buf = binary.AppendUvarint(e.buf, uint64(ops))
}

// Op adds one operation. Its slices are copied.
func (e *RecordEncoder) Op(unit uint32, origin Origin, op *Op) {
	tag := byte(op.Kind)
	if op.Expiry != 0 {
		tag |= recordHasExpiry
	}
	if origin != (Origin{}) {
		tag |= recordHasOrigin
	}
	b := append(e.buf, tag)
	b = binary.AppendUvarint(b, uint64(unit))
	if origin != (Origin{}) {
		b = binary.LittleEndian.AppendUint64(b, origin.ClientID)
		b = binary.AppendUvarint(b, origin.Sequence)
	}
	b = binary.AppendUvarint(b, uint64(len(op.Key)))
	b = append(b, op.Key...)
	if op.Kind != KindDelete {
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
		b = append(b, op.Value...)
	}
	if op.Expiry != 0 {
		b = binary.AppendUvarint(b, op.Expiry)
	}
	e.buf = b
}

// RecordOp is one decoded operation of a record.
type RecordOp struct {
	Op
	Partition int
	Unit      uint32
	Origin    Origin
}

var errRecord = errors.New("malformed record")

// DecodeRecord calls fn for each operation of a record, in order. The slices of
// the operation are borrowed from record. An error of fn ends the walk and is
// returned; anything malformed is an error too, and fn may then have seen the
// operations before it.
func DecodeRecord(record []byte, fn func(*RecordOp) error) error {
	d := recordDecoder{rest: record}
	if len(record) == 0 {
		return fmt.Errorf("%w: empty", errRecord)
	}
	for len(d.rest) > 0 {
		partition := d.uvarint(1 << 16)
		ops := d.uvarint(MaxBatchOps)
		if d.bad || ops == 0 {
			return fmt.Errorf("%w: section header", errRecord)
		}
		for range ops {
			op := RecordOp{Partition: int(partition)}
			d.op(&op)
			if d.bad {
				return fmt.Errorf("%w: operation with %d bytes left", errRecord, len(d.rest))
			}
			if err := fn(&op); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordDecoder consumes rest; bad sticks once anything is out of bounds.
type recordDecoder struct {
	rest []byte
	bad  bool
}

func (d *recordDecoder) op(op *RecordOp) {
	if len(d.rest) == 0 {
		d.bad = true
		return
	}
	tag := d.rest[0]
	d.rest = d.rest[1:]
	op.Kind = Kind(tag & recordKindMask)
	if !op.Kind.Valid() || tag&^(recordKindMask|recordHasExpiry|recordHasOrigin) != 0 {
		d.bad = true
		return
	}
	op.Unit = uint32(d.uvarint(1<<32 - 1))
	if tag&recordHasOrigin != 0 {
		if id := d.take(8); id != nil {
			op.Origin.ClientID = binary.LittleEndian.Uint64(id)
		}
		op.Origin.Sequence = d.uvarint(1<<64 - 1)
	}
	op.Key = d.take(d.uvarint(MaxKeyBytes))
	if op.Kind != KindDelete {
		op.Value = d.take(d.uvarint(MaxValueBytes))
	}
	if tag&recordHasExpiry != 0 {
		op.Expiry = d.uvarint(1<<64 - 1)
	}
	if len(op.Key) == 0 {
		d.bad = true
	}
}

// uvarint reads a number of at most max.
func (d *recordDecoder) uvarint(max uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > max || d.bad {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// take returns the next n bytes, never nil unless d turned bad.
func (d *recordDecoder) take(n uint64) []byte {
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}
