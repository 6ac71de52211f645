package frame

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
)

func TestBuffersLendWhatIsAskedFor(t *testing.T) {
	var pool buffers
	for _, n := range []int{0, 1, 255, 256, 257, 1 << 10, 1<<16 - 1, 1<<16 + 1, 1 << largestTier, 1<<largestTier + 1} {
		for range 3 {
			data := pool.Get(n)
			require.Len(t, *data, n)
			require.LessOrEqual(t, cap(*data), max(2*n, 1<<smallestTier), "no more than twice as much")
			pool.Put(data)
		}
	}
}

// Memory that did not come from Get is used for requests up to its capacity only.
func TestBuffersTakeAnyMemory(t *testing.T) {
	var pool buffers
	for _, n := range []int{0, 1, 255, 256, 300, 511, 512, 1 << largestTier, 1 << (largestTier + 1)} {
		data := make([]byte, n)
		pool.Put(&data)
	}
	for n := 1; n <= 1<<largestTier; n *= 2 {
		require.Len(t, *pool.Get(n), n)
	}
}

// BenchmarkBuffers compares Get and Put with those of gRPC's pool.
func BenchmarkBuffers(b *testing.B) {
	for name, pool := range map[string]mem.BufferPool{"ours": Buffers, "gRPC's": mem.DefaultBufferPool()} {
		for _, size := range []int{4 << 10, 20 << 10, 40 << 10, 160 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				for b.Loop() {
					pool.Put(pool.Get(size))
				}
			})
		}
	}
}
