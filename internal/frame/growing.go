package frame

import (
	"bufio"
	"io"

	"google.golang.org/grpc/mem"
)

// growingFrom is the most memory that a frame which arrives in parts has at first.
const growingFrom = 16 << 10

// ReadGrowing is like Read, for a frame that may arrive slowly: its memory grows with
// what has arrived, so a length alone reserves none. Each piece of memory is half of the next one,
// so that the last one, of the whole frame, is not copied from one that is as large.
//
// grow is called before the memory grows, with the additional bytes, and after a read
// error, with 0. If it returns false, the frame is discarded as by [Request.Discard];
// left is then how many of its bytes have not been read, which the caller must discard.
// After bytes were copied into larger memory, grow is called with the size of the smaller memory,
// negative; what it returns does not count then.
func (r *Request) ReadGrowing(from *bufio.Reader, limit int, grow func(bytes int) bool) (left int, err error) {
	r.Release()
	start, err := from.Peek(headerBytes)
	if err != nil {
		return 0, unexpected(err, start)
	}
	n, err := frameLength(start, limit)
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
	for halvings := halvingsOf(n); come < n; halvings-- {
		size := (n-1)>>halvings + 1
		if !grow(size) {
			drop()
			return n - come, r.discarded(head[:], n)
		}
		more := pool.Get(size)
		*more = (*more)[:size]
		if data != nil {
			copy(*more, *data)
			pool.Put(data)
			grow(-come)
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

// halvingsOf returns how often n bytes must be halved to be at most growingFrom.
func halvingsOf(n int) (halvings int) {
	for (n-1)>>halvings >= growingFrom {
		halvings++
	}
	return halvings
}
