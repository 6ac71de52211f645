package frame

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func putFrame(t testing.TB, value int) []byte {
	t.Helper()
	var b Builder
	b.Reset(WriteFrame)
	b.Add(&Op{Kind: Put, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), value)})
	return bytes.Clone(b.Finish(Header{ID: 7}))
}

// A frame that arrives in parts is decoded like one that arrives whole. Its memory is
// at most twice what has arrived plus the initial size. While it is copied into larger memory,
// what it is copied from is counted, too.
func TestMemoryGrowsWithWhatComes(t *testing.T) {
	for _, value := range []int{0, 100, growingFrom - 100, growingFrom, 100_000, 1 << 20} {
		data := putFrame(t, value)
		come, had := 0, 0
		from := bufio.NewReaderSize(io.TeeReader(iotest.OneByteReader(bytes.NewReader(data)), counter{&come}), 16)
		from = bufio.NewReaderSize(from, headerBytes)
		var r Request
		left, err := r.ReadGrowing(from, 8<<20, func(bytes int) bool {
			if had += bytes; bytes > 0 {
				assert.LessOrEqual(t, bytes, max(2*come+headerBytes, growingFrom))
				assert.LessOrEqual(t, had-bytes, come, "it is copied from what has come")
			} else {
				assert.LessOrEqual(t, had, max(2*come+headerBytes, growingFrom))
			}
			return true
		})
		require.NoError(t, err)
		assert.Zero(t, left)
		assert.Equal(t, len(data), had)
		assert.Equal(t, len(data), r.Bytes())
		require.Len(t, r.Ops, 1)
		assert.Len(t, r.Ops[0].Value, value)
		assert.EqualValues(t, 7, r.ID)
		r.Release()
	}
}

type counter struct{ n *int }

func (c counter) Write(p []byte) (int, error) {
	*c.n += len(p)
	return len(p), nil
}

// If there is no room to grow, the frame is discarded, the unread bytes are reported,
// and the next frame is read correctly.
func TestAGrowingFrameIsDiscarded(t *testing.T) {
	data := putFrame(t, 100_000)
	for refuse := 1; refuse <= 4; refuse++ {
		from := bufio.NewReader(bytes.NewReader(append(bytes.Clone(data), "next"...)))
		var r Request
		asked := 0
		left, err := r.ReadGrowing(from, 8<<20, func(int) bool {
			asked++
			return asked < refuse
		})
		require.NoError(t, err)
		assert.Positive(t, r.Discarded)
		require.Len(t, r.Ops, 1)
		assert.EqualValues(t, 7, r.ID)
		_, err = from.Discard(left)
		require.NoError(t, err)
		rest, err := io.ReadAll(from)
		require.NoError(t, err)
		assert.Equal(t, "next", string(rest))
	}
}

// An error of the connection is returned, unless the frame is discarded.
func TestAGrowingFrameThatBreaksOff(t *testing.T) {
	data := putFrame(t, 100_000)
	broken := errors.New("broken")
	read := func(at int, grow func(int) bool) (r Request, left int, err error) {
		from := bufio.NewReader(io.MultiReader(bytes.NewReader(data[:at]), iotest.ErrReader(broken)))
		left, err = r.ReadGrowing(from, 8<<20, grow)
		return r, left, err
	}
	for _, at := range []int{0, 3, headerBytes, 1000, len(data) - 1} {
		_, _, err := read(at, func(int) bool { return true })
		require.ErrorIs(t, err, broken)
		if at >= headerBytes {
			r, left, err := read(at, func(n int) bool { return n > 0 })
			require.NoError(t, err)
			assert.Positive(t, r.Discarded)
			assert.Equal(t, len(data)-at, left)
		}
	}
	_, err := new(Request).ReadGrowing(bufio.NewReader(bytes.NewReader(data)), 1000, nil)
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = new(Request).ReadGrowing(bufio.NewReader(bytes.NewReader(data[:50])), 8<<20, func(int) bool { return true })
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// For every input, ReadGrowing of a frame in parts gives the same result as Read.
func FuzzReadGrowing(f *testing.F) {
	f.Add(putFrame(f, 3))
	f.Add(putFrame(f, 20_000))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want, got Request
		wantErr := want.Read(bufio.NewReader(bytes.NewReader(data)), 1<<20)
		left, err := got.ReadGrowing(bufio.NewReader(iotest.HalfReader(bytes.NewReader(data))), 1<<20, func(int) bool { return true })
		if len(data) >= headerBytes {
			require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		}
		require.Zero(t, left)
		if err == nil {
			require.Equal(t, want.Ops, got.Ops)
		}
	})
}
