package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
)

// ErrWrongAnswer: the target returned something that no correct store could have
// returned. The text contains the key and what was expected.
var ErrWrongAnswer = errors.New("wrong answer")

// MinValueBytes is the length of the verifiable part of a value:
//
//	u32 CRC32C of all that follows | u64 key number | u64 version | random bytes
//
// Numbers are little-endian.
const MinValueBytes = 20

// version identifies a put of a run: the worker in the upper 16 bits, its count of puts
// in the lower 48. Zero is no version.
type version uint64

func newVersion(worker int, put uint64) version { return version(uint64(worker)<<48 | put) }

func (v version) worker() int { return int(v >> 48) }

func (v version) String() string {
	if v == 0 {
		return "the preload"
	}
	return fmt.Sprintf("put %d of worker %d", v&(1<<48-1), v.worker())
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// poolBytes is the number of offsets at which values may begin in the pool of random
// bytes. It is large enough that values in one compressed block rarely overlap, and
// small enough that the pool stays in the processor's cache.
const poolBytes = 1 << 20

// repeatBytes is the length of the stretches of a value of which each has the same share
// of repeated bytes: long enough that naming a repetition costs little, and short enough
// that a compressor of small blocks finds it.
const repeatBytes = 256

// valuePool makes values that are unique and verifiable, and as compressible as asked for,
// at the cost of a copy and a checksum. It is immutable and shared.
type valuePool struct {
	random []byte
}

// newValuePool returns a pool for values of which a share repeats: at the end of each
// stretch of repeatBytes one byte, again and again.
func newValuePool(valueBytes int, compressible float64, seed uint64) *valuePool {
	rng := rand.New(rand.NewPCG(seed, 0x706f6f6c))
	random := make([]byte, (poolBytes+valueBytes+7)&^7)
	for i := 0; i < len(random); i += 8 {
		binary.LittleEndian.PutUint64(random[i:], rng.Uint64())
	}
	repeated := int(math.Round(compressible * repeatBytes))
	for end := repeatBytes; end <= len(random) && repeated > 0; end += repeatBytes {
		stretch := random[end-repeated : end]
		for i := range stretch {
			stretch[i] = stretch[0]
		}
	}
	return &valuePool{random: random}
}

// fill makes dst the value of one put. random selects its random bytes.
func (p *valuePool) fill(dst []byte, id uint64, v version, random uint64) {
	copy(dst[MinValueBytes:], p.random[random%poolBytes:])
	seal(dst, id, v)
}

// seal writes the part of a value that makes it verifiable.
func seal(dst []byte, id uint64, v version) {
	binary.LittleEndian.PutUint64(dst[4:], id)
	binary.LittleEndian.PutUint64(dst[12:], uint64(v))
	binary.LittleEndian.PutUint32(dst, crc32.Checksum(dst[4:], castagnoli))
}

// naming writes what has a number, for an error.
type naming func(id uint64) string

// keyNames names keys of a length.
func keyNames(keyBytes int) naming {
	return func(id uint64) string { return fmt.Sprintf("key %0*d", keyBytes, id) }
}

// checkValue returns the version of a value that was read for a key, or an error if it
// cannot be a value of that key.
func checkValue(value []byte, id uint64, name naming) (version, error) {
	if len(value) < MinValueBytes {
		return 0, fmt.Errorf("%w: %s has a value of %d bytes; every value has at least %d",
			ErrWrongAnswer, name(id), len(value), MinValueBytes)
	}
	if binary.LittleEndian.Uint32(value) != crc32.Checksum(value[4:], castagnoli) {
		return 0, fmt.Errorf("%w: the value of %s (%d bytes) fails its checksum", ErrWrongAnswer, name(id), len(value))
	}
	if other := binary.LittleEndian.Uint64(value[4:]); other != id {
		return 0, fmt.Errorf("%w: %s has the value of %s", ErrWrongAnswer, name(id), name(other))
	}
	return version(binary.LittleEndian.Uint64(value[12:])), nil
}
