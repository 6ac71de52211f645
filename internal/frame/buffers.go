package frame

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Buffers is the pool of memory for frames. Memory that it returns is not cleared. Safe
// for concurrent use.
//
// It replaces mem.DefaultBufferPool, which returns 1 MiB for every request above 32 KiB
// and clears all of it each time. For a frame with 512 values of 128 bytes, clearing
// took client and server more time than the values did, and evicted the processor's
// caches.
var Buffers mem.BufferPool = new(buffers)

// Size classes: each power of two from 256 B to 4 MiB. Larger memory is allocated, and
// left to the garbage collector.
const (
	smallestTier = 8
	largestTier  = 22
)

type buffers [largestTier - smallestTier + 1]sync.Pool // of *[]byte

// Get returns this many bytes with arbitrary content.
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

// Put returns memory to the pool. The memory need not come from Get.
func (b *buffers) Put(data *[]byte) {
	tier := bits.Len(uint(cap(*data))) - 1
	if tier >= smallestTier && tier <= largestTier {
		b[tier-smallestTier].Put(data)
	}
}
