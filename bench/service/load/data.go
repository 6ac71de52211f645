package load

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
)

// KeyBytes is the length of every key.
const KeyBytes = 16

// PutKey writes the key of a number: 16 hexadecimal digits that look random and are
// unique. Every server accepts them.
func PutKey(dst []byte, id uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(id))
	hex.Encode(dst, b[:])
}

// mix is a bijection that maps neighbouring numbers to unrelated ones: the finalizer of
// SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// MinValueBytes is the length of the verifiable part of a value:
//
//	u64 key number | u64 put | u64 mix of both | bytes that the put chooses of a pool
const MinValueBytes = 24

// ErrWrongAnswer: a server returned what no correct one could have returned.
var ErrWrongAnswer = errors.New("wrong answer")

// Values generates and verifies values. It is immutable and shared.
type Values struct {
	size int
	pool []byte
}

// poolBytes is small enough for the processor's cache.
const poolBytes = 1 << 15

// NewValues returns Values of this length, at least MinValueBytes. They do not
// compress.
func NewValues(size int) *Values {
	rng := rand.NewChaCha8([32]byte{1})
	pool := make([]byte, poolBytes+size)
	for i := range pool {
		pool[i] = byte(rng.Uint64())
	}
	return &Values{size: size, pool: pool}
}

// Fill sets dst to the value that a put writes to a key.
func (v *Values) Fill(dst []byte, id, put uint64) {
	sum := checksum(id, put)
	binary.LittleEndian.PutUint64(dst, id)
	binary.LittleEndian.PutUint64(dst[8:], put)
	binary.LittleEndian.PutUint64(dst[16:], sum)
	copy(dst[MinValueBytes:], v.pool[sum%poolBytes:])
}

// Check returns an error unless some put could have written value to the key.
func (v *Values) Check(value []byte, id uint64) error {
	if len(value) != v.size {
		return fmt.Errorf("%w: key %d has a value of %d bytes, want %d", ErrWrongAnswer, id, len(value), v.size)
	}
	if other := binary.LittleEndian.Uint64(value); other != id {
		return fmt.Errorf("%w: key %d has the value of key %d", ErrWrongAnswer, id, other)
	}
	sum := checksum(id, binary.LittleEndian.Uint64(value[8:]))
	if binary.LittleEndian.Uint64(value[16:]) != sum || !bytes.Equal(value[MinValueBytes:], v.pool[sum%poolBytes:][:v.size-MinValueBytes]) {
		return fmt.Errorf("%w: the value of key %d is damaged", ErrWrongAnswer, id)
	}
	return nil
}

func checksum(id, put uint64) uint64 { return mix(mix(id) ^ put ^ 0x9e3779b97f4a7c15) }
