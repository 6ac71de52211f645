package valuefile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testPartition = 3

func testID(num kv.FileNum) kv.FileID { return kv.FileID{Partition: testPartition, Num: num} }

func fileName(num kv.FileNum) string { return fmt.Sprintf("/%06d.val", num) }

// shelf is value files in memory and their contents.
type shelf struct {
	t    testing.TB
	fs   vfs.FS
	want map[kv.ValuePointer][]byte
}

func newShelf(t testing.TB) *shelf {
	return &shelf{t: t, fs: vfs.NewMem(), want: map[kv.ValuePointer][]byte{}}
}

// write makes a file and returns the pointers in order.
func (s *shelf) write(num kv.FileNum, values ...[]byte) (pointers []kv.ValuePointer, meta kv.ValueFileMeta) {
	f, err := s.fs.Create(fileName(num))
	require.NoError(s.t, err)
	w := NewWriter(f, testID(num))
	for _, v := range values {
		p, err := w.Add(v)
		require.NoError(s.t, err)
		s.want[p] = bytes.Clone(v)
		pointers = append(pointers, p)
	}
	meta, err = w.Finish()
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
	return pointers, meta
}

func (s *shelf) open(num kv.FileNum) (*Reader, error) {
	f, err := s.fs.Open(fileName(num))
	if err != nil {
		return nil, err
	}
	r, err := Open(f, testID(num))
	if err != nil {
		_ = f.Close()
	}
	return r, err
}

// content returns the bytes of a file.
func (s *shelf) content(num kv.FileNum) []byte {
	f, err := s.fs.Open(fileName(num))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, f.Close()) }()
	size, err := f.Size()
	require.NoError(s.t, err)
	data := make([]byte, size)
	_, err = f.ReadAt(data, 0)
	require.NoError(s.t, err)
	return data
}

// replace replaces the content of a file.
func (s *shelf) replace(num kv.FileNum, data []byte) {
	require.NoError(s.t, s.fs.Remove(fileName(num)))
	f, err := s.fs.Create(fileName(num))
	require.NoError(s.t, err)
	_, err = f.WriteAt(data, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

// sizes are lengths around every limit: of a byte, of joining, of buffers.
var sizes = []int{1, 2, 100, 255, 256, 1000, joinGap, 9000, sweepBytes - recordBytes, sweepBytes, writeBytes, 9, 700, 5000}

func testValues() [][]byte {
	rng := rand.New(rand.NewPCG(1, 1))
	var values [][]byte
	for _, n := range sizes {
		values = append(values, bytes.Repeat([]byte{byte(rng.Uint32()), byte(rng.Uint32()), byte(n)}, n/3+1)[:n])
	}
	return values
}
