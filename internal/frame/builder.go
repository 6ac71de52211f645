package frame

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Header holds what a client sets for a whole request frame.
type Header struct {
	// ID is unique among the frames in flight on the connection.
	ID uint32
	// TimeoutMillis is the time left for operations without a timeout of their own; 0
	// leaves it to the server.
	TimeoutMillis uint32
	// Durability applies to every write.
	Durability kvdpb.Durability
	// Timed requests Response.Timings.
	Timed bool
	// OneVersion requests that all reads are answered at one version. No read may then
	// have an AtVersion.
	OneVersion bool
}

// Builder builds compact request frames, operation by operation, in memory of Buffers.
// The zero value builds reads. Not safe for concurrent use.
//
// The size of what precedes the operations is known only at the end. So operations
// begin at a fixed offset, and the frame begins as far before it as needed.
type Builder struct {
	kind  FrameKind
	data  *[]byte // frontBytes, then the operations
	count int

	named    bool
	clientID uint64
	base     uint64 // sequence number that the others are relative to
}

// The parts before the operations: the field of a PipelineRequest that holds the frame,
// the header, and the client id and base of a frame with named writes.
const (
	fieldBytes = 1 + 5
	frontBytes = fieldBytes + headerBytes + nameBytes
)

// firstBytes is the initial size of a Builder's memory. Guessed.
const firstBytes = 2 << 10

// Reset begins a frame of ReadFrame, WriteFrame or CallFrame in the memory of the previous frame,
// which becomes invalid.
func (b *Builder) Reset(kind FrameKind) {
	if kind != ReadFrame && kind != WriteFrame && kind != CallFrame {
		panic(fmt.Sprintf("frame: a builder of %v", kind))
	}
	data := b.data
	*b = Builder{kind: kind, data: data}
	if data != nil {
		*data = (*data)[:frontBytes]
	}
}

// Len returns the largest size that the frame can have with the operations so far.
func (b *Builder) Len() int {
	if b.data == nil {
		return headerBytes + nameBytes
	}
	return len(*b.data) - fieldBytes
}

// Count returns the number of operations so far.
func (b *Builder) Count() int { return b.count }

// Add appends an operation, which must be of the frame's kind, and returns its offset
// for Skip. Its key, which must not be empty unless it is a call, and its values are copied. Its Tag and
// Durability are not sent: the tag is the position, the durability is that of Finish.
// All named writes of a frame must have the same ClientID.
//
// A frame has at most MaxOps operations.
func (b *Builder) Add(op *Op) (offset int) {
	b.reserve(op.SizeBound())
	if b.count == MaxOps {
		panic("frame: too many operations")
	}
	offset = len(*b.data)
	b.count++
	switch {
	case op.Kind == Call && b.kind == CallFrame:
		*b.data = op.appendCall(*b.data)
	case op.Kind == Get && b.kind <= ReadFrame:
		*b.data = op.appendRead(*b.data)
	case (op.Kind == Put || op.Kind == Delete) && b.kind == WriteFrame:
		if op.named() {
			b.name(op)
		}
		*b.data = op.appendWrite(*b.data, b.base)
	default:
		panic(fmt.Sprintf("frame: a %v in a frame of %v", op.Kind, b.kind))
	}
	return offset
}

// Skip cancels an operation: the server does not perform it, and its result says so.
// The operation stays in the frame.
func (b *Builder) Skip(offset int) {
	head := &(*b.data)[offset]
	*head = skipped(b.kind, *head)
}

func skipped(kind FrameKind, head byte) byte {
	if kind == CallFrame {
		return head | headSkippedCall
	}
	if kind == WriteFrame && head&headKind == headPut {
		return head | headSkippedPut
	}
	if kind == WriteFrame && head&headKind == headSkippedPut {
		return head
	}
	return head &^ headKind
}

// Finish completes the frame, which must have at least one operation, and returns it.
// The result is valid until Reset or Message.
func (b *Builder) Finish(h Header) []byte { return (*b.data)[b.finish(h):] }

// Message completes the frame like Finish and returns it as a message for a stream that
// was created with [Codec]. The message owns the memory; the Builder starts with new
// memory.
func (b *Builder) Message(h Header) *Encoded {
	start := b.finish(h)
	front := fieldSize(len(*b.data) - start)
	putField((*b.data)[start-front:], requestFrame, len(*b.data)-start)
	data := mem.NewBuffer(b.data, Buffers)
	whole := data.Slice(start-front, data.Len())
	data.Free()
	b.data = nil
	b.Reset(max(b.kind, ReadFrame))
	return &Encoded{data: mem.BufferSlice{whole}}
}

// finish writes what precedes the operations and returns where the frame begins.
func (b *Builder) finish(h Header) (start int) {
	if b.count == 0 {
		panic("frame: without an operation")
	}
	data := *b.data
	head := header{kind: max(b.kind, ReadFrame), count: b.count, id: h.ID, extra: h.TimeoutMillis}
	if h.Timed && b.kind != CallFrame { // the request message of a call asks for timings
		head.flags |= flagTimed
	}
	start = frontBytes - headerBytes
	if b.kind == WriteFrame {
		head.flags |= uint8(h.Durability) << durabilityShift & durabilityMask
		if b.named {
			start = fieldBytes
			head.flags |= flagNamed
			binary.LittleEndian.PutUint64(data[start+headerBytes:], b.clientID)
			binary.LittleEndian.PutUint64(data[start+headerBytes+8:], b.base)
		}
	} else if h.OneVersion && b.kind <= ReadFrame {
		head.flags |= flagOneVersion
	}
	head.put(data[start:], len(data)-start)
	return start
}

// name makes the sequence number of the first named write the base of the others.
func (b *Builder) name(op *Op) {
	if !b.named {
		b.named, b.clientID, b.base = true, op.ClientID, op.Sequence
	}
	if op.ClientID != b.clientID {
		panic("frame: writes of two clients")
	}
}

// reserve makes room for n more bytes.
func (b *Builder) reserve(n int) {
	pool := Buffers
	if b.data == nil {
		b.data = pool.Get(max(firstBytes, frontBytes+n))
		*b.data = (*b.data)[:frontBytes]
	}
	if cap(*b.data)-len(*b.data) >= n {
		return
	}
	old := b.data
	b.data = pool.Get(max(2*cap(*old), len(*old)+n))
	*b.data = append((*b.data)[:0], *old...)
	pool.Put(old)
}

func (o *Op) appendRead(b []byte) []byte {
	head := byte(headGet)
	if o.Skipped {
		head = headSkippedGet
	}
	at := len(b)
	b = append(b, 0)
	if o.AtVersion != 0 {
		head |= headAtVersion
		b = binary.AppendUvarint(b, o.AtVersion)
		if o.Epoch != 0 {
			head |= headEpoch
			b = binary.LittleEndian.AppendUint64(b, o.Epoch)
		}
	}
	if o.TimeoutMillis != 0 {
		head |= headTimeout
		b = binary.AppendUvarint(b, uint64(o.TimeoutMillis))
	}
	b[at] = head
	return appendCompactBytes(b, o.Key)
}

func (o *Op) appendWrite(b []byte, base uint64) []byte {
	head := byte(headPut)
	if o.Kind == Delete {
		head = headDelete
	}
	at := len(b)
	b = append(b, 0)
	if o.Kind == Put && o.TTLMillis != 0 {
		head |= headTTL
		b = binary.AppendUvarint(b, o.TTLMillis)
	}
	if o.Condition.Kind != 0 {
		head |= headCondition
		b = o.Condition.appendCompact(b)
	}
	if o.ReturnPrevious {
		head |= headPrevious
	}
	if o.named() {
		head |= headNamed
		b = binary.AppendUvarint(b, o.Sequence-base)
	}
	if o.Retried {
		head |= headRetried
		b = binary.AppendUvarint(b, o.KnownVersion)
	}
	if o.TimeoutMillis != 0 {
		head |= headTimeout
		b = binary.AppendUvarint(b, uint64(o.TimeoutMillis))
	}
	if o.Skipped {
		head = skipped(WriteFrame, head)
	}
	b[at] = head
	b = appendCompactBytes(b, o.Key)
	if o.Kind == Put {
		b = appendCompactBytes(b, o.Value)
	}
	return b
}

func (c *Condition) appendCompact(b []byte) []byte {
	b = append(b, byte(c.Kind))
	switch c.Kind {
	case VersionEquals:
		b = binary.AppendUvarint(b, c.Version)
	case ValueEquals:
		b = appendCompactBytes(b, c.Value)
	}
	return b
}

// A compact frame is a bytes field of a message: one byte of tag, then the length.

func fieldSize(n int) int { return 1 + protowire.SizeVarint(uint64(n)) }

func putField(b []byte, k key, n int) {
	b[0] = byte(k)
	binary.PutUvarint(b[1:], uint64(n))
}
