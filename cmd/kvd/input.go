package main

import (
	"context"
	"io"
)

// inputBytes is how much an endable reads at once.
const inputBytes = 64 << 10

// endable is a reader whose reads end with a context, which those of a terminal or a pipe do not: it
// reads on a goroutine, which ends with its read, or with the process. Used by one goroutine at a time.
type endable struct {
	ctx    context.Context
	from   io.Reader
	buffer []byte // of the goroutine while a read is under way
	chunks chan chunk
	asked  bool // a read is under way
	left   chunk
}

// chunk is what a read returned.
type chunk struct {
	bytes []byte
	err   error
}

// until returns a reader of what r has, whose reads return the error of ctx once that has ended.
func until(ctx context.Context, r io.Reader) io.Reader {
	return &endable{ctx: ctx, from: r, buffer: make([]byte, inputBytes), chunks: make(chan chunk, 1)}
}

// Read implements io.Reader.
func (e *endable) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if len(e.left.bytes) == 0 && e.left.err == nil {
		if !e.asked {
			e.asked = true
			go func() {
				n, err := e.from.Read(e.buffer)
				e.chunks <- chunk{e.buffer[:n], err}
			}()
		}
		select {
		case e.left = <-e.chunks:
			e.asked = false
		case <-e.ctx.Done():
			return 0, e.ctx.Err()
		}
	}
	n := copy(p, e.left.bytes)
	e.left.bytes = e.left.bytes[n:]
	if len(e.left.bytes) == 0 && e.left.err != nil {
		return n, e.left.err
	}
	return n, nil
}
