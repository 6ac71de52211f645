package inspect

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Digest summarizes a set of keys and values. Two stores with the same pairs have the
// same digest, in whatever order the pairs were added. Stores with different pairs have
// different digests, unless the pairs were constructed to collide. Versions and deleted
// keys do not count.
//
// The digest is the sum, modulo 2^128, of the first 16 bytes of SHA-256(key length,
// key, value), with the length as eight little-endian bytes. With an exclusive or
// instead of a sum, a pair that is added twice would vanish.
//
// The zero value is the digest of the empty set. Not safe for concurrent use.
type Digest struct {
	high, low uint64
	count     uint64
	buf       []byte
}

// Add adds one pair. It does not keep the slices.
func (d *Digest) Add(key, value []byte) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf[:0], uint64(len(key)))
	d.buf = append(append(d.buf, key...), value...)
	sum := sha256.Sum256(d.buf)
	var carry uint64
	d.low, carry = bits.Add64(d.low, binary.LittleEndian.Uint64(sum[0:]), 0)
	d.high, _ = bits.Add64(d.high, binary.LittleEndian.Uint64(sum[8:]), carry)
	d.count++
}

// Count returns the number of pairs added.
func (d *Digest) Count() uint64 { return d.count }

// String returns the sum as 32 hexadecimal digits.
func (d *Digest) String() string { return fmt.Sprintf("%016x%016x", d.high, d.low) }
