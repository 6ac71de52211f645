package frame

import (
	"bufio"
	"io"

	"google.golang.org/grpc/mem"
)

// growingFrom is the initial memory of a frame that arrives in parts.
const growingFrom = 16 << 10

// ReadGrowing is like Read, for a frame that may arrive slowly: its memory grows with
// what has arrived, so a length alone reserves none.
//
// grow is called before the memory grows, with the additional bytes, and after a read
// error, with 0. If it returns false, the frame is discarded as by [Request.Discard];
// left is then how many of its bytes have not been read, which the caller must discard.
func (r *Request) ReadGrowing(from *bufio.Reader, limit int, grow func(bytes int) bool) (left int, err error) {
	r.Release()
	start, err := from.Peek(headerBytes)
	if err != nil {
		return 0, unexpected(err, start)
	}
	n, err := FrameLength(start, limit)
	if err != nil {
		return 0, err
	}
	var head [headerBytes]byte
	copy(head[:], start)
	var data *[]byte
	pool := Buffers
	drop := func() {
		if data != nil {
			pool.Put(data)
		}
	}
	come := 0
	for size := min(n, growingFrom); come < n; size = min(n, 2*size) {
		if !grow(size - come) {
			drop()
			return n - come, r.discarded(head[:], n)
		}
		more := pool.Get(size)
		*more = (*more)[:size]
		if data != nil {
			copy(*more, *data)
			pool.Put(data)
		}
		data = more
		got, err := io.ReadFull(from, (*data)[come:])
		come += got
		switch {
		case err == nil:
		case !grow(0):
			drop()
			return n - come, r.discarded(head[:], n)
		default:
			drop()
			return 0, unexpected(err, head[:])
		}
	}
	r.memory.pooled = mem.NewBuffer(data, pool)
	return 0, r.DecodeCompact(*data)
}
