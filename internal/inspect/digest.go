package inspect

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Digest sums up a set of keys and values. Two stores have the same digest if
// they hold the same pairs, in whatever order they were added, and, unless
// somebody took pains to find two sets with the same sum, only then. Versions
// and deleted keys do not count.
//
// It is the sum, modulo 2^128, of the first 16 bytes of
// SHA-256(key length, key, value), the length as eight little-endian bytes. A
// sum rather than an exclusive or, or a pair added twice would vanish.
//
// The zero value is the digest of nothing. Not safe for concurrent use.
type Digest struct {
	high, low uint64
	count     uint64
	buf       []byte
}

// Add adds one pair. The slices are not kept.
func (d *Digest) Add(key, value []byte) {
	d.buf = binary.LittleEndian.AppendUint64(d.buf[:0], uint64(len(key)))
	d.buf = append(append(d.buf, key...), value...)
	sum := sha256.Sum256(d.buf)
	var carry uint64
	d.low, carry = bits.Add64(d.low, binary.LittleEndian.Uint64(sum[0:]), 0)
	d.high, _ = bits.Add64(d.high, binary.LittleEndian.Uint64(sum[8:]), carry)
	d.count++
}

// Count returns how many pairs were added.
func (d *Digest) Count() uint64 { return d.count }

// String returns the sum as 32 hexadecimal digits.
func (d *Digest) String() string { return fmt.Sprintf("%016x%016x", d.high, d.low) }
