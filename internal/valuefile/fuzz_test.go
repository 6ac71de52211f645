package valuefile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// FuzzReader opens any bytes as a value file: no panic, no excessive allocation, and a
// Writer would write byte for byte what Verify accepts.
func FuzzReader(f *testing.F) {
	s := newShelf(f)
	s.write(13, []byte("one"), []byte("two"), make([]byte, 300))
	whole := s.content(13)
	f.Add(whole, uint64(0), uint32(3))
	f.Add(whole[:len(whole)-1], uint64(11), uint32(3))
	f.Add(whole[len(whole)-footerBytes:], uint64(1<<63), uint32(1<<31))
	f.Fuzz(func(t *testing.T, data []byte, offset uint64, length uint32) {
		s := &shelf{t: t, fs: vfs.NewMem(), want: map[kv.ValuePointer][]byte{}}
		s.write(13, []byte("x"))
		s.replace(13, data)
		r, err := s.open(13)
		if err != nil {
			return
		}
		if _, err := r.Read(kv.ValuePointer{File: 13, Offset: offset, Length: length}, nil); err != nil {
			require.ErrorIs(t, err, kv.ErrCorrupt)
		}
		var values [][]byte
		if r.Walk(func(_ kv.ValuePointer, value []byte) error {
			values = append(values, append([]byte(nil), value...))
			return nil
		}) == nil && r.Verify(t.Context(), nil) == nil {
			again := newShelf(t)
			again.write(13, values...)
			require.Equal(t, data, again.content(13))
		}
		require.NoError(t, r.Close())
	})
}
