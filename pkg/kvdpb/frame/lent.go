package frame

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Lender has lent bytes for an answer. It gets them back when the transport has
// written the answer, or dropped it.
type Lender interface{ Give(bytes int64) }

// Lent is a message whose encoded bytes are lent: [Codec] encodes the message, and the
// lender gets the bytes back once the transport is done with them.
type Lent struct {
	Message proto.Message
	Lender  Lender
	Bytes   int64
}

// encode lays the message out.
func (l *Lent) encode() (mem.BufferSlice, error) {
	size := proto.Size(l.Message)
	data := Buffers.Get(max(size, leastCounted))
	var err error
	if *data, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend((*data)[:0], l.Message); err != nil {
		Buffers.Put(data)
		l.Lender.Give(l.Bytes)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(data, &lentPool{l.Lender, l.Bytes})}, nil
}

// leastCounted is the least memory whose end a mem.Buffer tells.
const leastCounted = 2 << 10

// lentPool takes the memory of one answer back, and gives its bytes back with it.
type lentPool struct {
	lender Lender
	bytes  int64
}

// Get implements mem.BufferPool.
func (p *lentPool) Get(length int) *[]byte { return Buffers.Get(length) }

// Put implements mem.BufferPool.
func (p *lentPool) Put(data *[]byte) {
	Buffers.Put(data)
	p.lender.Give(p.bytes)
}
