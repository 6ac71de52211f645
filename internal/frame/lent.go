package frame

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Lender has reserved bytes for an answer. Give returns them when the transport has
// written the answer or dropped it.
type Lender interface{ Give(bytes int64) }

// Lent is a message whose encoding uses reserved bytes: [Codec] encodes the message,
// and gives the bytes back to the lender when the transport no longer needs the
// encoding.
type Lent struct {
	Message proto.Message
	Lender  Lender
	Bytes   int64
}

// encode encodes the message.
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

// leastCounted is the smallest buffer for which mem.Buffer calls the pool's Put.
const leastCounted = 2 << 10

// lentPool receives the memory of one answer, and then gives its bytes back to the
// lender.
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
