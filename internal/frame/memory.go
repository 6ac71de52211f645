package frame

import (
	"bufio"
	"io"
	"slices"

	"google.golang.org/grpc/mem"
)

// keptBytes is the largest frame whose memory a message keeps for the next one.
// Guessed: about a hundred small operations.
const keptBytes = 16 << 10

// memory holds the bytes of one decoded frame. The zero value is empty.
type memory struct {
	pooled mem.Buffer
	kept   []byte // used if pooled is nil
	used   int    // bytes of kept
}

// set takes ownership of the buffer of a message and returns its bytes.
func (m *memory) set(b mem.Buffer) []byte {
	m.pooled = b
	return b.ReadOnlyData()
}

// read reads one compact frame from a connection.
func (m *memory) read(from *bufio.Reader, limit int) (frame []byte, err error) {
	start, err := from.Peek(lengthBytes)
	if err != nil {
		return nil, unexpected(err, start)
	}
	n, err := frameLength(start, limit)
	if err != nil {
		return nil, err
	}
	frame = m.sized(n)
	_, err = io.ReadFull(from, frame)
	return frame, err
}

// Arrived reports whether all of the next compact frame is in the buffer, or enough to see that it is
// none, so that reading it does not wait.
func Arrived(in *bufio.Reader, limit int) bool {
	start, _ := in.Peek(in.Buffered()) // never an error
	if len(start) < lengthBytes {
		return false
	}
	n, err := frameLength(start, limit)
	return err != nil || n <= len(start)
}

// unexpected returns the error for a connection that ended after part of a frame.
func unexpected(err error, bytes []byte) error {
	if err == io.EOF && len(bytes) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sized provides n bytes of memory.
func (m *memory) sized(n int) []byte {
	if n > keptBytes {
		pool := Buffers
		b := pool.Get(n)
		*b = (*b)[:n]
		m.pooled = mem.NewBuffer(b, pool)
		return *b
	}
	if cap(m.kept) < n {
		m.kept = slices.Grow([]byte(nil), n)
	}
	m.used = n
	return m.kept[:n]
}

// len returns the size of the frame.
func (m *memory) len() int {
	if m.pooled != nil {
		return m.pooled.Len()
	}
	return m.used
}

// release frees the memory for the next frame.
func (m *memory) release() {
	if m.pooled != nil {
		m.pooled.Free()
		m.pooled = nil
	}
	m.used = 0
}
