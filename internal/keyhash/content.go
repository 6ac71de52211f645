package keyhash

import (
	"math/bits"

	"github.com/kvd-db/kvd/internal/kv"
)

// Content returns a hash, never 0, of the effect of an atomic write: kinds, keys and values
// of its operations, in their order. A write that is retried under a request id must
// have the same content as the first attempt.
//
// The hash excludes what a retry may change: durability, conditions, and the time of
// expiry, which the server computes from a time to live when a request arrives. It includes
// whether there is an expiry.
//
// Like Sum it is part of the disk format, and a golden test pins its values.
func Content(ops []kv.Op) uint64 {
	var h content
	for i := range ops {
		h.op(&ops[i], Sum(ops[i].Key))
	}
	return h.sum()
}

// ContentOne is Content of a single operation whose key hash is known.
func ContentOne(op *kv.Op, hash uint64) uint64 {
	var h content
	h.op(op, hash)
	return h.sum()
}

type content uint64

// contentExpires is a flag beside the kind of an operation.
const contentExpires = 1 << 8

func (h *content) op(op *kv.Op, key uint64) {
	kind := uint64(op.Kind)
	if op.Expiry != 0 {
		kind |= contentExpires
	}
	h.mix(kind)
	h.mix(key)
	h.mix(Sum(op.Value))
}

// mix adds a number by a multiplication; both halves of the product depend on all of it.
func (h *content) mix(v uint64) {
	hi, lo := bits.Mul64(uint64(*h)^v^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	*h = content(bits.RotateLeft64(hi^lo, 23) + v)
}

func (h *content) sum() uint64 { return max(uint64(*h), 1) }
