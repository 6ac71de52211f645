package messages

import (
	"cmp"
	"reflect"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Decode decodes the request of a call, and takes it from the quota of the client. Two bytes of a
// request can become some hundred: an empty mutation, key or range. So reserve is called first, to
// reserve what the request occupies then beside its strings; and a request with more elements than
// its method takes is refused, with the error that the method has for that.
func Decode(s *service.Server, c *service.Call, encoded []byte, request proto.Message, reserve func(bytes int64) error) error {
	var n counts
	bytes, ok := shapeOf(request).weigh(encoded, &n)
	err := n.check(s, request)
	if !ok {
		err = errMalformed
	}
	if err != nil {
		// It counts as one operation: how many it has of which sort is not known.
		return cmp.Or(s.Charge(c.Identity, time.Now(), 1, len(encoded)), err)
	}
	if err := reserve(bytes + n.workBytes(request)); err != nil {
		return err
	}
	if proto.Unmarshal(encoded, request) != nil {
		return errMalformed
	}
	return charge(s, c, request, len(encoded))
}

var errMalformed = service.Invalidf("the request cannot be decoded: it is not the message that the method takes")

// counts say of each field of a request, by its number, how often it occurs, and which value it has
// if it is a number.
type counts struct {
	of     [16]int
	values [16]uint64
}

// check compares the elements of a request with the limits of its method.
func (n *counts) check(s *service.Server, request proto.Message) error {
	switch request.(type) {
	case *kvdpb.WriteRequest:
		return s.CheckMutations(n.of[1])
	case *kvdpb.BatchGetRequest:
		return s.CheckKeys(n.of[1])
	case *kvdpb.CommitRequest:
		if err := s.CheckMutations(n.of[4]); err != nil {
			return err
		}
		return s.CheckReads(n.of[2]+n.of[3], n.of[7])
	case *kvdpb.ExecuteRequest:
		return s.CheckMutations(n.of[1] + n.of[2] + n.of[3])
	}
	return nil
}

// What the service makes of one element of a request, until the request is answered. A key is also
// looked up by a pointer, and has a part of the answer; a mutation of a request that is not atomic
// becomes a write of its own, with a status.
var (
	mutationBytes = sizeOf[service.Mutation]() + 2*sizeOf[kv.Op]()
	writeBytes    = sizeOf[kv.Write]() + sizeOf[*kv.Write]() + sizeOf[kvdpb.Status]() + sizeOf[service.Error]() + errorBytes
	lookupBytes   = sizeOf[kv.Lookup]() + sizeOf[*kv.Lookup]() + sizeOf[kvdpb.BatchGetResponse_Lookup]() + sizeOf[kvdpb.Item]()
	guardBytes    = 2 * sizeOf[kv.Guard]()
	rangeBytes    = 2 * sizeOf[kv.Range]()
)

// errorBytes is what the error of one mutation occupies beside its struct: an error that wraps
// another one, and its text three times, once of it in the encoded answer. Guessed.
const errorBytes = 400

// workBytes returns what the service makes of the elements of a request.
func (n *counts) workBytes(request proto.Message) int64 {
	switch request.(type) {
	case *kvdpb.WriteRequest:
		if n.values[2] != 0 { // atomic
			return int64(n.of[1]) * mutationBytes
		}
		return int64(n.of[1]) * (mutationBytes + writeBytes)
	case *kvdpb.BatchGetRequest:
		return int64(n.of[1]) * lookupBytes
	case *kvdpb.CommitRequest:
		return int64(n.of[4])*mutationBytes + int64(n.of[3])*rangeBytes
	case *kvdpb.ExecuteRequest:
		return int64(n.of[1])*guardBytes + int64(n.of[2]+n.of[3])*mutationBytes
	}
	return 0
}

// shape says what a decoded message of one type occupies, but for the contents of its strings.
type shape struct {
	bytes  int64   // of the message itself
	fields []field // by their numbers, which are small
}

// field says what one occurrence of a field occupies. There are no lists of numbers.
type field struct {
	bytes   int64  // beside its message, and the contents of a string
	message *shape // nil: it is no message
}

var shapes sync.Map // of *shape by reflect.Type of the message

func shapeOf(m proto.Message) *shape {
	key := reflect.TypeOf(m)
	if s, ok := shapes.Load(key); ok {
		return s.(*shape)
	}
	s, _ := shapes.LoadOrStore(key, newShape(m.ProtoReflect().Type()))
	return s.(*shape)
}

// allocBytes bounds what an allocation adds to the bytes asked for. A large one is rounded up by
// less than an eighth.
const allocBytes = 16

func newShape(t protoreflect.MessageType) *shape {
	s := &shape{bytes: int64(reflect.TypeOf(t.Zero().Interface()).Elem().Size()) + allocBytes}
	all := t.Descriptor().Fields()
	for i := range all.Len() {
		d := all.Get(i)
		if missing := int(d.Number()) + 1 - len(s.fields); missing > 0 {
			s.fields = append(s.fields, make([]field, missing)...)
		}
		var f field
		switch d.Kind() {
		case protoreflect.MessageKind:
			if inner, err := protoregistry.GlobalTypes.FindMessageByName(d.Message().FullName()); err == nil {
				f.message = newShape(inner)
			}
			f.bytes = sizeOf[*int]()
		case protoreflect.BytesKind, protoreflect.StringKind:
			f.bytes = allocBytes
			if d.IsList() {
				f.bytes += sizeOf[[]byte]()
			}
		}
		switch {
		case d.IsList():
			f.bytes *= 2 // it has room for more elements
		case d.ContainingOneof() != nil:
			f.bytes += sizeOf[[]byte]() + allocBytes // a struct around the field
		}
		s.fields[d.Number()] = f
	}
	return s
}

// weigh returns what an encoded message of the shape occupies once it is decoded, but for the
// contents of its strings, and counts its fields; it reports whether the message is well-formed.
// What occurs twice though it is no list counts twice, too.
func (s *shape) weigh(encoded []byte, n *counts) (bytes int64, ok bool) {
	bytes = s.bytes
	for len(encoded) > 0 {
		number, kind, value, rest, ok := next(encoded)
		if !ok {
			return 0, false
		}
		if n != nil && number < len(n.of) {
			n.of[number]++
			if kind == protowire.VarintType {
				n.values[number], _ = protowire.ConsumeVarint(value)
			}
		}
		if number < len(s.fields) {
			f := &s.fields[number]
			bytes += f.bytes
			switch {
			case f.message == nil || kind != protowire.BytesType:
			case len(value) == 0:
				bytes += f.message.bytes
			default:
				inner, ok := f.message.weigh(value, nil)
				if !ok {
					return 0, false
				}
				bytes += inner
			}
		}
		encoded = rest
	}
	return bytes, true
}

// next splits the first field off an encoded message: its value, of a string or a message without
// its length, and the bytes after it. It reports whether the field is well-formed.
func next(encoded []byte) (number int, kind protowire.Type, value, rest []byte, ok bool) {
	// Nearly all tiny elements: the tag and the length have one byte each.
	if len(encoded) >= 2 && encoded[0]&(1<<7|7) == byte(protowire.BytesType) && encoded[0] >= 1<<3 {
		if end := 2 + int(encoded[1]); encoded[1] < 1<<7 && end <= len(encoded) {
			return int(encoded[0] >> 3), protowire.BytesType, encoded[2:end], encoded[end:], true
		}
	}
	n, kind, tag := protowire.ConsumeTag(encoded)
	if tag < 0 || n > protowire.MaxValidNumber { // which ConsumeTag does not check
		return 0, 0, nil, nil, false
	}
	encoded = encoded[tag:]
	size := protowire.ConsumeFieldValue(n, kind, encoded)
	if size < 0 {
		return 0, 0, nil, nil, false
	}
	value = encoded[:size]
	if kind == protowire.BytesType {
		value, _ = protowire.ConsumeBytes(encoded)
	}
	return int(n), kind, value, encoded[size:], true
}

func sizeOf[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }
