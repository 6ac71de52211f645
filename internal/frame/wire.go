package frame

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The wire types that the two messages use.
const (
	wireVarint  = key(protowire.VarintType)
	wireFixed64 = key(protowire.Fixed64Type)
	wireBytes   = key(protowire.BytesType)
)

// key precedes a field on the wire: number<<3 | wire type. A known number with another
// wire type is thus an unknown field, as in protobuf.
type key uint64

func (k key) number() protowire.Number { return protowire.Number(k >> 3) }

// cursor walks the fields of one message.
type cursor struct {
	rest []byte
	bad  bool

	key   key
	uint  uint64 // value of a varint or fixed64 field
	bytes []byte // value of a bytes field, pointing into the message
}

// next moves to the next field; it returns false at the end and on damage.
func (c *cursor) next() bool {
	if len(c.rest) == 0 || c.bad {
		return false
	}
	number, wireType, n := protowire.ConsumeTag(c.rest)
	if n < 0 || number > protowire.MaxValidNumber {
		c.bad = true
		return false
	}
	c.rest = c.rest[n:]
	switch c.key = key(protowire.EncodeTag(number, wireType)); wireType {
	case protowire.VarintType:
		c.uint, n = protowire.ConsumeVarint(c.rest)
	case protowire.Fixed64Type:
		c.uint, n = protowire.ConsumeFixed64(c.rest)
	case protowire.BytesType:
		c.bytes, n = protowire.ConsumeBytes(c.rest)
	default:
		n = protowire.ConsumeFieldValue(number, wireType, c.rest)
	}
	if n < 0 {
		c.bad = true
		return false
	}
	c.rest = c.rest[n:]
	return true
}

// err returns ErrMalformed if the walk ended because of damage.
func (c *cursor) err() error {
	if c.bad {
		return ErrMalformed
	}
	return nil
}

// The encoders omit zero numbers and empty byte strings, as proto3 does.

func sizeUint(k key, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(k.number()) + protowire.SizeVarint(v)
}

func appendUint(b []byte, k key, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, uint64(k)), v)
}

func sizeFixed64(k key, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(k.number()) + protowire.SizeFixed64()
}

func appendFixed64(b []byte, k key, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendVarint(b, uint64(k)), v)
}

// asUint converts a bool to the value of its varint field.
func asUint(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// byteString is the Go type of a bytes or string field.
type byteString interface{ ~[]byte | ~string }

func sizeBytes[T byteString](k key, v T) int {
	if len(v) == 0 {
		return 0
	}
	return sizeMessage(k, len(v))
}

func appendBytes[T byteString](b []byte, k key, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return append(appendHeader(b, k, len(v)), v...)
}

// sizeMessage returns the size of an embedded message whose body has n bytes. The
// message is sent even if n is 0.
func sizeMessage(k key, n int) int { return protowire.SizeTag(k.number()) + protowire.SizeBytes(n) }

// appendHeader begins an embedded message whose body has n bytes.
func appendHeader(b []byte, k key, n int) []byte {
	return protowire.AppendVarint(protowire.AppendVarint(b, uint64(k)), uint64(n))
}

// encode encodes a message of size bytes in a buffer of the pool.
func encode(size int, appendTo func([]byte) []byte, pool mem.BufferPool) mem.BufferSlice {
	if mem.IsBelowBufferPoolingThreshold(size) {
		return mem.BufferSlice{mem.SliceBuffer(appendTo(make([]byte, 0, size)))}
	}
	b := pool.Get(size)
	*b = appendTo((*b)[:0])
	return mem.BufferSlice{mem.NewBuffer(b, pool)}
}
