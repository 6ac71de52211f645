package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// RecordEncoder encodes one record of the commit log:
//
//	record  = section, any number; an empty record only uses up a sequence number
//	section = uvarint partition | uvarint operations (>= 1) | op ...
//	op      = u8 tag | uvarint unit
//	          | u64 client id, uvarint client sequence   if tag & 0x20
//	          | u64 content hash                         if tag & 0x40, which requires 0x20
//	          | uvarint key length | key
//	          | uvarint value length | value             if put or range delete
//	          | uvarint expiry                           if tag & 0x10
//	tag     = kind in the low 4 bits, flags above
//
// Numbers are little-endian; a uvarint is in its shortest form. The operations of a
// unit share one sequence number: the first number of the record, which the log keeps
// beside the record, plus the unit. The sections of a record name different partitions.
// The record has no checksum of its own: the log's frame has one.
//
// The content hash (keyhash.Content) is that of the whole unit, and is stored with its
// first operation in each section. It was added in version 2 of the log: a record
// without one says nothing about the content.
//
// The zero value is ready. Not safe for concurrent use.
type RecordEncoder struct {
	buf []byte
}

const (
	recordHasExpiry  = 0x10
	recordHasOrigin  = 0x20
	recordHasContent = 0x40
	recordKindMask   = 0x0f
	recordFlags      = recordHasExpiry | recordHasOrigin | recordHasContent
)

// Reset empties the encoder and keeps its memory.
func (e *RecordEncoder) Reset() { e.buf = e.buf[:0] }

// Bytes returns the record, borrowed until the next call on e.
func (e *RecordEncoder) Bytes() []byte { return e.buf }

// Section begins the operations of one partition. The caller must then call Op exactly
// ops times.
func (e *RecordEncoder) Section(partition, ops int) {
	e.buf = binary.AppendUvarint(e.buf, uint64(partition))
	e.buf = binary.AppendUvarint(e.buf, uint64(ops))
}

// Op appends one operation and copies its slices.
func (e *RecordEncoder) Op(unit uint32, origin Origin, op *Op) {
	tag := byte(op.Kind)
	if op.Expiry != 0 {
		tag |= recordHasExpiry
	}
	hasContent := origin.Named() && origin.Content != 0
	if origin.Named() {
		tag |= recordHasOrigin
	}
	if hasContent {
		tag |= recordHasContent
	}
	b := append(e.buf, tag)
	b = binary.AppendUvarint(b, uint64(unit))
	if origin.Named() {
		b = binary.LittleEndian.AppendUint64(b, origin.ClientID)
		b = binary.AppendUvarint(b, origin.Sequence)
	}
	if hasContent {
		b = binary.LittleEndian.AppendUint64(b, origin.Content)
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

// DecodeRecord calls fn for each operation of a record, in order. The operation is
// borrowed until fn returns; its slices are borrowed from record. DecodeRecord stops at
// the first error of fn and returns it. If the record is malformed, it returns an error
// after fn has been called for the operations before the damage.
func DecodeRecord(record []byte, fn func(*RecordOp) error) error {
	d := Decoder{Rest: record}
	var op RecordOp // one for all operations: it escapes to the heap, as fn might keep it
	for len(d.Rest) > 0 {
		partition := d.Uvarint(1 << 16)
		// Not bounded by MaxBatchOps: a record may hold the writes of several calls,
		// each with up to that many. Nothing is allocated by this count, and the length
		// of the record bounds the loop.
		ops := d.Uvarint(1<<32 - 1)
		if ops == 0 {
			d.fail(errors.New("no operations"))
		}
		if d.Err != nil {
			return fmt.Errorf("%w: section header: %w", errRecord, d.Err)
		}
		for range ops {
			op = RecordOp{Partition: int(partition)}
			op.decode(&d)
			if d.Err != nil {
				return fmt.Errorf("%w: operation with %d bytes left: %w", errRecord, len(d.Rest), d.Err)
			}
			if err := fn(&op); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *RecordOp) decode(d *Decoder) {
	first := d.Take(1)
	if d.Err != nil {
		return
	}
	tag := first[0]
	op.Kind = Kind(tag & recordKindMask)
	if !op.Kind.Valid() || tag&^(recordKindMask|recordFlags) != 0 || tag&(recordHasOrigin|recordHasContent) == recordHasContent {
		d.fail(fmt.Errorf("unknown tag %#02x", tag))
		return
	}
	op.Unit = uint32(d.Uvarint(1<<32 - 1))
	if tag&recordHasOrigin != 0 {
		if id := d.Take(8); id != nil {
			op.Origin.ClientID = binary.LittleEndian.Uint64(id)
		}
		op.Origin.Sequence = d.Uvarint(1<<64 - 1)
	}
	if tag&recordHasContent != 0 {
		if content := d.Take(8); content != nil {
			if op.Origin.Content = binary.LittleEndian.Uint64(content); !op.Origin.Named() || op.Origin.Content == 0 {
				d.fail(errors.New("content hash of nothing"))
				return
			}
		}
	}
	op.Key = d.Bytes(MaxKeyBytes)
	if op.Kind != KindDelete {
		op.Value = d.Bytes(MaxValueBytes)
	}
	if tag&recordHasExpiry != 0 {
		op.Expiry = d.Uvarint(1<<64 - 1)
	}
	if len(op.Key) == 0 {
		d.fail(errors.New("empty key"))
	}
}
