package frame

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// MaxOps is the largest number of operations in one frame. It bounds what a
// decoder allocates for a frame of tiny operations.
const MaxOps = 1024

// Kind is the number of an operation's field in the oneof of PipelineRequest.Op.
type Kind uint8

// The kinds of operations. Zero is an operation without a kind, or of a kind that this
// version does not know.
const (
	Get    Kind = 2
	Put    Kind = 3
	Delete Kind = 4
	// Call is in no message: only compact frames have calls.
	Call Kind = 0xff
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Call:
		return "call"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// The fields of PipelineRequest and of its parts.
const (
	requestOps   = 1<<3 | wireBytes
	requestFrame = 2<<3 | wireBytes

	opTag     = 1<<3 | wireVarint
	opGet     = key(Get)<<3 | wireBytes
	opPut     = key(Put)<<3 | wireBytes
	opDelete  = key(Delete)<<3 | wireBytes
	opTimeout = 6<<3 | wireVarint

	bodyKey  = 1<<3 | wireBytes // of GetRequest and DeleteRequest
	bodyItem = 1<<3 | wireBytes // of PutRequest

	bodyAtVersion = 2<<3 | wireVarint  // of GetRequest
	bodyEpoch     = 4<<3 | wireFixed64 // of GetRequest

	// Of PutRequest and DeleteRequest.
	bodyPrecondition   = 2<<3 | wireBytes
	bodyReturnPrevious = 3<<3 | wireVarint
	bodyOptions        = 4<<3 | wireBytes

	itemKey     = 1<<3 | wireBytes
	itemValue   = 2<<3 | wireBytes
	itemVersion = 3<<3 | wireVarint
	itemTTL     = 4<<3 | wireVarint
)

var errTwoFormats = malformed("a message of operations and a compact frame")

// Op is one operation of a request frame.
type Op struct {
	Tag           uint64 // in a compact frame its position
	Kind          Kind
	Skipped       bool   // not to be performed; only in a compact frame
	TimeoutMillis uint32 // 0: up to the server
	Key           []byte

	// AtVersion of a Get is that of a snapshot; 0 reads the newest version.
	AtVersion uint64
	// Epoch is that of the snapshot; 0: not known.
	Epoch uint64

	// Method of a Call, whose Value is the encoded request message, and which has no Key.
	Method Method

	// Value and TTLMillis are set for a Put; a TTL of 0 never expires.
	Value     []byte
	TTLMillis uint64

	// For a Put or Delete.
	ReturnPrevious bool
	Condition      Condition
	Options
}

// Request is a PipelineRequest, or a compact frame by itself. The zero value is empty.
// It is reused frame by frame. Not safe for concurrent use.
type Request struct {
	Ops []Op

	// Compact: the operations came as a compact frame, and the answers must be compact
	// frames too. The fields below apply to such a frame.
	Compact bool
	// Malformed says why a message cannot be decoded; it has no operations then:
	// ErrMalformed or ErrTooLarge. The stream is unusable after it.
	Malformed error
	// Discarded is the number of operations of a frame that was not kept, see Discard; 0: it was.
	// Ops then has the first one alone.
	Discarded int
	ID        uint32
	// Timed: the client requests Response.Timings.
	Timed bool
	// OneVersion: all reads must be answered at one version.
	OneVersion bool

	// Held is what the transport has reserved for the bytes of the frame. The pipeline that serves it
	// gives it back.
	Held int64

	// Room is asked before a compact frame is decoded whether there is memory for so many
	// operations; without, the frame is discarded. Nil: there always is. Release keeps it.
	Room func(ops int) bool

	// memory holds the keys and values of a decoded frame.
	memory memory
}

// Count returns the number of operations, also of a frame that was discarded.
func (r *Request) Count() int { return max(len(r.Ops), r.Discarded) }

// Release frees the memory of a decoded frame, and with it the keys and values of Ops.
// It keeps the slice of Ops for the next frame.
func (r *Request) Release() {
	r.memory.release()
	clear(r.Ops)
	*r = Request{Ops: r.Ops[:0], Room: r.Room, memory: r.memory}
}

// Abandon replaces Release while another goroutine may still read the keys and values:
// it leaves their memory to the garbage collector.
func (r *Request) Abandon() { *r = Request{} }

// Bytes returns the size of a decoded frame.
func (r *Request) Bytes() int { return r.memory.len() }

// Encoded is an encoded request frame, for SendMsg on a stream that was created with
// [Codec].
type Encoded struct{ data mem.BufferSlice }

// Encode encodes the frame. The result shares no memory with r, so its keys and values
// may be reused at once. It may be sent at most once.
func (r *Request) Encode() *Encoded { return &Encoded{data: encode(r.size(), r.append, Buffers)} }

// SizeBound returns an upper bound of the size of the operation in a frame of either
// format.
func (o *Op) SizeBound() int {
	n := len(o.Key) + len(o.Value) + opOverhead
	if o.AtVersion|o.Epoch|o.TTLMillis != 0 || o.ReturnPrevious || o.Condition.Kind != 0 || o.extended() {
		n += len(o.Condition.Value) + extraOverhead
	}
	return n
}

const (
	// opOverhead bounds what the encoding of a plain operation adds to its key and
	// value: the headers of four messages and two byte strings, at most six bytes each,
	// and three numbers.
	opOverhead = 6*6 + 11 + 6 + 6
	// extraOverhead bounds what the other fields add: a version or time to live, an
	// epoch, a flag, a condition (two headers, or a header and a number), and a request
	// id.
	extraOverhead = 11 + 9 + 2 + (6 + 11) + (9 + 11 + 2 + 11)
)

func (r *Request) size() (n int) {
	for i := range r.Ops {
		n += sizeMessage(requestOps, r.Ops[i].size())
	}
	return n
}

func (r *Request) append(b []byte) []byte {
	for i := range r.Ops {
		op := &r.Ops[i]
		b = op.append(appendHeader(b, requestOps, op.size()))
	}
	return b
}

func (o *Op) size() int {
	return sizeUint(opTag, o.Tag) +
		sizeMessage(key(o.Kind)<<3|wireBytes, o.bodySize()) +
		sizeUint(opTimeout, uint64(o.TimeoutMillis))
}

func (o *Op) append(b []byte) []byte {
	b = appendUint(b, opTag, o.Tag)
	b = o.appendBody(appendHeader(b, key(o.Kind)<<3|wireBytes, o.bodySize()))
	return appendUint(b, opTimeout, uint64(o.TimeoutMillis))
}

func (o *Op) bodySize() (n int) {
	switch o.Kind {
	case Get:
		return sizeBytes(bodyKey, o.Key) + sizeUint(bodyAtVersion, o.AtVersion) + sizeFixed64(bodyEpoch, o.Epoch)
	case Put:
		n = sizeMessage(bodyItem, o.itemSize())
	default:
		n = sizeBytes(bodyKey, o.Key)
	}
	if o.Condition.Kind != 0 {
		n += sizeMessage(bodyPrecondition, o.Condition.size())
	}
	if o.ReturnPrevious {
		n += sizeUint(bodyReturnPrevious, 1)
	}
	if o.Options.chosen() {
		n += sizeMessage(bodyOptions, o.Options.size())
	}
	return n
}

func (o *Op) appendBody(b []byte) []byte {
	switch o.Kind {
	case Get:
		return appendFixed64(appendUint(appendBytes(b, bodyKey, o.Key), bodyAtVersion, o.AtVersion), bodyEpoch, o.Epoch)
	case Put:
		b = appendHeader(b, bodyItem, o.itemSize())
		b = appendBytes(b, itemKey, o.Key)
		b = appendBytes(b, itemValue, o.Value)
		b = appendUint(b, itemTTL, o.TTLMillis)
	default:
		b = appendBytes(b, bodyKey, o.Key)
	}
	if o.Condition.Kind != 0 {
		b = o.Condition.append(appendHeader(b, bodyPrecondition, o.Condition.size()))
	}
	if o.ReturnPrevious {
		b = appendUint(b, bodyReturnPrevious, 1)
	}
	if o.Options.chosen() {
		b = o.Options.append(appendHeader(b, bodyOptions, o.Options.size()))
	}
	return b
}

func (o *Op) itemSize() int {
	return sizeBytes(itemKey, o.Key) + sizeBytes(itemValue, o.Value) + sizeUint(itemTTL, o.TTLMillis)
}

// decode decodes a message. Keys and values point into data.
func (r *Request) decode(data []byte) error {
	r.Ops = r.Ops[:0]
	var compact []byte
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case requestFrame:
			compact = c.bytes
			continue
		case requestOps:
		default:
			continue
		}
		if len(r.Ops) == MaxOps {
			return errTooManyOps
		}
		r.Ops = append(r.Ops, Op{})
		if err := r.Ops[len(r.Ops)-1].decode(c.bytes); err != nil {
			return err
		}
	}
	if len(compact) == 0 || c.bad {
		return c.err()
	}
	if len(r.Ops) > 0 {
		r.Compact, r.Ops, r.Malformed = true, r.Ops[:0], errTwoFormats
		return nil
	}
	r.Malformed = r.DecodeCompact(compact)
	return nil
}

func (o *Op) decode(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case opTag:
			o.Tag = c.uint
		case opGet, opPut, opDelete:
			if err := o.decodeBody(Kind(c.key.number()), c.bytes); err != nil {
				return err
			}
		case opTimeout:
			o.TimeoutMillis = uint32(c.uint)
		}
	}
	return c.err()
}

// decodeBody decodes a GetRequest, PutRequest or DeleteRequest. As everywhere in
// protobuf, the last member of a oneof wins, and a repeated member is merged.
func (o *Op) decodeBody(kind Kind, data []byte) error {
	if o.Kind != 0 && o.Kind != kind {
		*o = Op{Tag: o.Tag, TimeoutMillis: o.TimeoutMillis}
	}
	o.Kind = kind
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch {
		case kind == Put && c.key == bodyItem:
			err = o.decodeItem(c.bytes)
		case kind != Put && c.key == bodyKey:
			o.Key = c.bytes
		case kind == Get && c.key == bodyAtVersion:
			o.AtVersion = c.uint
		case kind == Get && c.key == bodyEpoch:
			o.Epoch = c.uint
		case kind == Get: // the other fields belong to writes
		case c.key == bodyPrecondition:
			err = o.Condition.decode(c.bytes)
		case c.key == bodyReturnPrevious:
			o.ReturnPrevious = c.uint != 0
		case c.key == bodyOptions:
			err = o.Options.decode(c.bytes)
		}
		if err != nil {
			return err
		}
	}
	return c.err()
}

func (o *Op) decodeItem(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case itemKey:
			o.Key = c.bytes
		case itemValue:
			o.Value = c.bytes
		case itemTTL:
			o.TTLMillis = c.uint
		}
	}
	return c.err()
}
