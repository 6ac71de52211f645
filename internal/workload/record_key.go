package workload

import (
	"fmt"
	"math/bits"
)

// RecordKeyBytes is the length of a record's key: "user" and 20 digits, similar to
// YCSB.
const RecordKeyBytes = len(recordPrefix) + positionDigits

const (
	recordPrefix   = "user"
	positionDigits = 20 // of 2^64-1
)

// position is the place of a record in key order: its number with the bits reversed
// (van der Corput's sequence). Records that are inserted one after the other lie far
// apart, as with the hash that YCSB uses. Unlike with a hash, the successor of any of
// the first n records can be computed without a list of them, so a scan can be checked
// for missing records.
type position uint64

func positionOf(id uint64) position { return position(bits.Reverse64(id)) }

func (p position) id() uint64 { return bits.Reverse64(uint64(p)) }

// successor returns the next position after p among the records 0 ... n-1, which
// include p; false if p is the last.
//
// With m bits for the numbers below n the positions are multiples of 2^(64-m). The even
// multiples belong to numbers below 2^(m-1), which are all below n. So the next
// position is one step away, or two.
func (p position) successor(n uint64) (position, bool) {
	if n < 2 {
		return 0, false
	}
	step := position(1) << (64 - bits.Len64(n-1))
	for next := p + step; next > p; next += step {
		if next.id() < n {
			return next, true
		}
	}
	return 0, false
}

// put writes the key to the first RecordKeyBytes of dst.
func (p position) put(dst []byte) {
	copy(dst[:RecordKeyBytes], recordPrefix)
	n := uint64(p)
	for i := RecordKeyBytes - 1; i >= len(recordPrefix); i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
}

// key returns the key in newly allocated memory.
func (p position) key() []byte {
	key := make([]byte, RecordKeyBytes)
	p.put(key)
	return key
}

// recordName names a record with its key, for an error.
func recordName(id uint64) string { return fmt.Sprintf("record %d (key %s)", id, positionOf(id).key()) }

// parsePosition is the inverse of put; false if the key is not that of a record.
func parsePosition(key []byte) (position, bool) {
	if len(key) != RecordKeyBytes || string(key[:len(recordPrefix)]) != recordPrefix {
		return 0, false
	}
	var n uint64
	for _, c := range key[len(recordPrefix):] {
		if c < '0' || c > '9' {
			return 0, false
		}
		hi, times := bits.Mul64(n, 10)
		sum, carry := bits.Add64(times, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, false
		}
		n = sum
	}
	return position(n), true
}
