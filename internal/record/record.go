// Package record encodes and decodes the records of the commit log. A record holds the
// operations of one micro-batch of a partition, or of one atomic batch over several
// partitions. The log treats a record as opaque bytes; only [Encoder] and [Decode] know
// the layout, which is given with [Encoder].
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// Encoder encodes one record of the commit log:
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
type Encoder struct {
	buf []byte
}

const (
	flagExpiry    = 0x10
	flagRequestID = 0x20
	flagContent   = 0x40
	kindMask      = 0x0f
	allFlags      = flagExpiry | flagRequestID | flagContent
)

// Reset empties the encoder and keeps its memory.
func (e *Encoder) Reset() { e.buf = e.buf[:0] }

// Grow makes room for n more bytes.
func (e *Encoder) Grow(n int) { e.buf = slices.Grow(e.buf, n) }

// Bytes returns the record, borrowed until the next call on e.
func (e *Encoder) Bytes() []byte { return e.buf }

// Section begins the operations of one partition. The caller must then call Op exactly
// ops times.
func (e *Encoder) Section(partition, ops int) {
	e.buf = binary.AppendUvarint(e.buf, uint64(partition))
	e.buf = binary.AppendUvarint(e.buf, uint64(ops))
}

// Op appends one operation and copies its slices.
func (e *Encoder) Op(unit uint32, id kv.RequestID, op *kv.Op) {
	tag := byte(op.Kind)
	if op.Expiry != 0 {
		tag |= flagExpiry
	}
	hasContent := id.Named() && id.Content != 0
	if id.Named() {
		tag |= flagRequestID
	}
	if hasContent {
		tag |= flagContent
	}
	b := append(e.buf, tag)
	b = binary.AppendUvarint(b, uint64(unit))
	if id.Named() {
		b = binary.LittleEndian.AppendUint64(b, id.ClientID)
		b = binary.AppendUvarint(b, id.Sequence)
	}
	if hasContent {
		b = binary.LittleEndian.AppendUint64(b, id.Content)
	}
	b = binary.AppendUvarint(b, uint64(len(op.Key)))
	b = append(b, op.Key...)
	if op.Kind != kv.KindDelete {
		b = binary.AppendUvarint(b, uint64(len(op.Value)))
		b = append(b, op.Value...)
	}
	if op.Expiry != 0 {
		b = binary.AppendUvarint(b, op.Expiry)
	}
	e.buf = b
}

// Op is one decoded operation of a record.
type Op struct {
	kv.Op
	Partition int
	Unit      uint32
	RequestID kv.RequestID
}

var errMalformed = errors.New("malformed record")

// Decode calls fn for each operation of a record, in order. The operation is
// borrowed until fn returns; its slices are borrowed from record. Decode stops at
// the first error of fn and returns it. If the record is malformed, it returns an error
// after fn has been called for the operations before the damage.
func Decode(record []byte, fn func(*Op) error) error {
	d := kv.Decoder{Rest: record}
	var op Op // one for all operations: it escapes to the heap, as fn might keep it
	for len(d.Rest) > 0 {
		partition := d.Uvarint(1 << 16)
		// Not bounded by kv.MaxBatchOps: a record may hold the writes of several calls,
		// each with up to that many. Nothing is allocated by this count, and the length
		// of the record bounds the loop.
		ops := d.Uvarint(1<<32 - 1)
		if ops == 0 {
			d.Fail(errors.New("no operations"))
		}
		if d.Err != nil {
			return fmt.Errorf("%w: section header: %w", errMalformed, d.Err)
		}
		for range ops {
			op = Op{Partition: int(partition)}
			op.decode(&d)
			if d.Err != nil {
				return fmt.Errorf("%w: operation with %d bytes left: %w", errMalformed, len(d.Rest), d.Err)
			}
			if err := fn(&op); err != nil {
				return err
			}
		}
	}
	return nil
}

func (op *Op) decode(d *kv.Decoder) {
	first := d.Take(1)
	if d.Err != nil {
		return
	}
	tag := first[0]
	op.Kind = kv.Kind(tag & kindMask)
	if !op.Kind.Valid() || tag&^(kindMask|allFlags) != 0 || tag&(flagRequestID|flagContent) == flagContent {
		d.Fail(fmt.Errorf("unknown tag %#02x", tag))
		return
	}
	op.Unit = uint32(d.Uvarint(1<<32 - 1))
	if tag&flagRequestID != 0 {
		if id := d.Take(8); id != nil {
			op.RequestID.ClientID = binary.LittleEndian.Uint64(id)
		}
		op.RequestID.Sequence = d.Uvarint(1<<64 - 1)
	}
	if tag&flagContent != 0 {
		if content := d.Take(8); content != nil {
			if op.RequestID.Content = binary.LittleEndian.Uint64(content); !op.RequestID.Named() || op.RequestID.Content == 0 {
				d.Fail(errors.New("content hash of nothing"))
				return
			}
		}
	}
	op.Key = d.Bytes(kv.MaxKeyBytes)
	if op.Kind != kv.KindDelete {
		op.Value = d.Bytes(kv.MaxValueBytes)
	}
	if tag&flagExpiry != 0 {
		op.Expiry = d.Uvarint(1<<64 - 1)
	}
	if len(op.Key) == 0 {
		d.Fail(errors.New("empty key"))
	}
}
