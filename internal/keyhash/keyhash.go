// Package keyhash is the one hash of a key. The engine hashes a key once, where the key
// enters. The high bits of the hash choose the partition, the low bits the slot of a
// memtable and of a filter. All hashes of one partition have the same high bits, so code
// below the partition must not use them alone.
//
// The hash is part of the disk format: the store's descriptor names it, filters
// are built from it, and a golden test pins its values. It is xxHash64 with
// seed 0, not a hash seeded per process (hash/maphash would send every key
// to another partition after a restart).
package keyhash

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// Name is the name of the hash in the store's descriptor.
const Name = "xxhash64-seed0"

// Sum returns the hash of key.
func Sum(key []byte) uint64 { return xxhash.Sum64(key) }

// Partition maps a hash to one of n partitions by multiply-shift (Lemire, "Fast
// random integer generation in an interval", 2019): the upper 64 bits of
// hash*n. It is never negative and even to within n/2^64; n must be positive.
func Partition(hash uint64, n int) int {
	hi, _ := bits.Mul64(hash, uint64(n))
	return int(hi)
}
