package frame

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// Codec encodes and decodes the frames of this package and leaves every other message
// to gRPC's codec for protobuf. It has the same name, as the bytes on the wire are the
// same. A server installs it with grpc.ForceServerCodecV2, a client's stream with
// grpc.ForceCodecV2.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

type codec struct{ encoding.CodecV2 }

// Undecoded is a message as it came. Its receiver decodes it, and frees the buffer.
type Undecoded struct{ mem.Buffer }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *Encoded:
		return v.data, nil
	case *Response:
		return v.encode(), nil
	case *Lent:
		return v.encode()
	case *LentParts:
		return v.encode(), nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch v := v.(type) {
	case *Undecoded:
		v.Buffer = data.MaterializeToBuffer(Buffers)
		return nil
	case *Request:
		v.Release()
		if err := v.decode(v.memory.set(data.MaterializeToBuffer(Buffers))); err != nil {
			// With an error gRPC would end the stream with INTERNAL and without a
			// reason.
			v.Ops, v.Malformed = v.Ops[:0], err
		}
		return nil
	case *Response:
		v.Release()
		return v.decode(v.memory.set(data.MaterializeToBuffer(Buffers)))
	}
	return c.CodecV2.Unmarshal(data, v)
}
