package frame

import (
	"fmt"

	"google.golang.org/grpc/mem"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// MaxOps is the largest number of operations in one frame. It bounds what a
// decoder allocates for a frame of tiny operations.
const MaxOps = 1024

// Kind says what an operation does: the number of its field in the oneof of
// PipelineRequest.Op.
type Kind uint8

// The kinds of operations. Zero is an operation that names none, or one that
// this version does not know.
const (
	Get    Kind = 2
	Put    Kind = 3
	Delete Kind = 4
)

func (k Kind) String() string {
	switch k {
	case Get:
		return "get"
	case Put:
		return "put"
	case Delete:
		return "delete"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// The fields of PipelineRequest and of what it is made of.
const (
	requestOps = 1<<3 | wireBytes

	opTag     = 1<<3 | wireVarint
	opGet     = key(Get)<<3 | wireBytes
	opPut     = key(Put)<<3 | wireBytes
	opDelete  = key(Delete)<<3 | wireBytes
	opTimeout = 6<<3 | wireVarint

	bodyKey     = 1<<3 | wireBytes // of GetRequest and DeleteRequest
	bodyItem    = 1<<3 | wireBytes // of PutRequest
	bodyOptions = 4<<3 | wireBytes // of PutRequest and DeleteRequest

	optionsDurability = 3<<3 | wireVarint

	itemKey     = 1<<3 | wireBytes
	itemValue   = 2<<3 | wireBytes
	itemVersion = 3<<3 | wireVarint
)

// Op is one operation of a request frame.
type Op struct {
	Tag           uint64
	Kind          Kind
	Durability    kvdpb.Durability // of a Put or Delete
	TimeoutMillis uint32           // 0: up to the server
	Key, Value    []byte
}

// Request is a PipelineRequest. The zero value is empty. It is used again frame
// by frame, by one goroutine at a time.
type Request struct {
	Ops []Op
	// buffer holds the keys and values of a decoded frame.
	buffer mem.Buffer
}

// Release gives back the memory of a decoded frame, and with it the keys and
// values of Ops. The memory of Ops itself is kept for the next frame.
func (r *Request) Release() {
	if r.buffer != nil {
		r.buffer.Free()
		r.buffer = nil
	}
	clear(r.Ops)
	r.Ops = r.Ops[:0]
}

// Abandon is called in place of Release while somebody may still read the keys
// and values: it leaves their memory to the garbage collector.
func (r *Request) Abandon() { r.buffer, r.Ops = nil, nil }

// Bytes returns the size of a decoded frame.
func (r *Request) Bytes() int {
	if r.buffer == nil {
		return 0
	}
	return r.buffer.Len()
}

// Encoded is a request frame as bytes: what SendMsg takes on a stream that was
// made with [Codec].
type Encoded struct{ data mem.BufferSlice }

// Encode lays the frame out. The result shares no memory with r, whose keys and
// values may be used otherwise at once, and is sent at most once.
func (r *Request) Encode() *Encoded { return &Encoded{data: encode(r.size(), r.append)} }

// SizeBound returns an upper bound of the bytes that the operation takes in a
// frame.
func (o *Op) SizeBound() int { return len(o.Key) + len(o.Value) + opOverhead }

// opOverhead is the most that the layout adds to keys and values: the headers of
// four messages and two byte strings, at most six bytes each, and three numbers.
const opOverhead = 6*6 + 11 + 6 + 6

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
	b = appendHeader(b, key(o.Kind)<<3|wireBytes, o.bodySize())
	if o.Kind == Put {
		b = appendHeader(b, bodyItem, o.itemSize())
		b = appendBytes(b, itemKey, o.Key)
		b = appendBytes(b, itemValue, o.Value)
	} else {
		b = appendBytes(b, bodyKey, o.Key)
	}
	if size := o.optionsSize(); size > 0 {
		b = appendHeader(b, bodyOptions, size)
		b = appendUint(b, optionsDurability, uint64(o.Durability))
	}
	return appendUint(b, opTimeout, uint64(o.TimeoutMillis))
}

func (o *Op) bodySize() (n int) {
	if o.Kind == Put {
		n = sizeMessage(bodyItem, o.itemSize())
	} else {
		n = sizeBytes(bodyKey, o.Key)
	}
	if size := o.optionsSize(); size > 0 {
		n += sizeMessage(bodyOptions, size)
	}
	return n
}

func (o *Op) itemSize() int { return sizeBytes(itemKey, o.Key) + sizeBytes(itemValue, o.Value) }

// optionsSize is 0 if there is no option to send.
func (o *Op) optionsSize() int {
	if o.Kind == Get {
		return 0
	}
	return sizeUint(optionsDurability, uint64(o.Durability))
}

// decode reads a frame. The keys and values then point into data.
func (r *Request) decode(data []byte) error {
	r.Ops = r.Ops[:0]
	c := cursor{rest: data}
	for c.next() {
		if c.key != requestOps {
			continue
		}
		if len(r.Ops) == MaxOps {
			return fmt.Errorf("frame has more than %d operations", MaxOps)
		}
		r.Ops = append(r.Ops, Op{})
		if err := r.Ops[len(r.Ops)-1].decode(c.bytes); err != nil {
			return err
		}
	}
	return c.err()
}

func (o *Op) decode(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case opTag:
			o.Tag = c.varint
		case opGet, opPut, opDelete:
			if err := o.decodeBody(Kind(c.key.number()), c.bytes); err != nil {
				return err
			}
		case opTimeout:
			o.TimeoutMillis = uint32(c.varint)
		}
	}
	return c.err()
}

// decodeBody reads a GetRequest, PutRequest or DeleteRequest. As everywhere in
// protobuf, the last member of a oneof wins and one that comes twice is merged.
func (o *Op) decodeBody(kind Kind, data []byte) error {
	if o.Kind != kind {
		*o = Op{Tag: o.Tag, TimeoutMillis: o.TimeoutMillis, Kind: kind}
	}
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch {
		case kind == Put && c.key == bodyItem:
			err = o.decodeItem(c.bytes)
		case kind != Put && c.key == bodyKey:
			o.Key = c.bytes
		case kind != Get && c.key == bodyOptions:
			err = o.decodeOptions(c.bytes)
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
		}
	}
	return c.err()
}

func (o *Op) decodeOptions(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		if c.key == optionsDurability {
			o.Durability = kvdpb.Durability(c.varint)
		}
	}
	return c.err()
}
