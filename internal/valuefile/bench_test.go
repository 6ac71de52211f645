package valuefile

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkVerify verifies files of this many values of 1,000 bytes, as each flush and merge does with
// what it wrote.
func BenchmarkVerify(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("values=%d", n), func(b *testing.B) {
			s := newShelf(b)
			values := make([][]byte, n)
			for i := range values {
				values[i] = bytes.Repeat([]byte{byte(i)}, 1000)
			}
			_, meta := s.write(13, values...)
			r, err := s.open(13)
			require.NoError(b, err)
			b.SetBytes(int64(meta.Size))
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, r.Verify(b.Context(), nil))
			}
			require.NoError(b, r.Close())
		})
	}
}
