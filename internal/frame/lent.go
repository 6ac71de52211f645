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

// LentParts is an encoded message of which the second part stays where it lies, so that a large
// value is not copied. It uses reserved bytes as Lent does. Nothing changes the parts any more,
// and Tail has more than leastCounted bytes.
type LentParts struct {
	Head, Tail []byte
	Lender     Lender
	Bytes      int64
}

// encode returns the parts. The lender gets its bytes when the tail is not needed any more: the
// transport is through with the head before.
func (l *LentParts) encode() mem.BufferSlice {
	return mem.BufferSlice{mem.SliceBuffer(l.Head), mem.NewBuffer(&l.Tail, &partsPool{lentPool{l.Lender, l.Bytes}})}
}

// partsPool is a lentPool for memory that goes to no pool.
type partsPool struct{ lentPool }

// Put implements mem.BufferPool.
func (p *partsPool) Put(*[]byte) { p.lender.Give(p.bytes) }

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
