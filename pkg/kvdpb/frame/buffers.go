package frame

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Buffers lends memory for frames: whoever gets some writes all that it reads of it.
// Safe for concurrent use.
//
// It stands in for mem.DefaultBufferPool, which lends 1 MiB for whatever is larger than
// 32 KiB, and clears all of it each time. Of a frame with 512 values of 128 bytes that
// took both sides more time than the values did, and what the processor's caches held.
var Buffers mem.BufferPool = new(buffers)

// Tiers of memory: each power of two from 256 B to 4 MiB. What is larger is allocated
// anew, and left to the garbage collector.
const (
	smallestTier = 8
	largestTier  = 22
)

type buffers [largestTier - smallestTier + 1]sync.Pool // of *[]byte

// Get returns so many bytes, which hold anything.
func (b *buffers) Get(length int) *[]byte {
	tier := max(bits.Len(uint(max(length, 1)-1)), smallestTier)
	if tier > largestTier {
		data := make([]byte, length)
		return &data
	}
	if data, ok := b[tier-smallestTier].Get().(*[]byte); ok {
		*data = (*data)[:length]
		return data
	}
	data := make([]byte, length, 1<<tier)
	return &data
}

// Put takes memory back. It may come from elsewhere.
func (b *buffers) Put(data *[]byte) {
	tier := bits.Len(uint(cap(*data))) - 1
	if tier >= smallestTier && tier <= largestTier {
		b[tier-smallestTier].Put(data)
	}
}
