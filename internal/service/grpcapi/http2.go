package grpcapi

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The frames of HTTP/2 that count here: RFC 9113, section 6.
const (
	h2Data         = 0x0
	h2Headers      = 0x1
	h2ResetStream  = 0x3
	h2Settings     = 0x4
	h2Ping         = 0x6
	h2GoAway       = 0x7
	h2Continuation = 0x9

	h2EndStream = 0x1 // flag of data and headers
	h2Padded    = 0x8 // likewise
	h2Ack       = 0x1 // of settings and pings

	h2HeaderBytes  = 9
	h2PrefaceBytes = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
)

// h2Error is an error code of HTTP/2: RFC 9113, section 7.
type h2Error uint32

const (
	h2NoError          h2Error = 0x0
	h2ProtocolError    h2Error = 0x1
	h2FlowControlError h2Error = 0x3
	h2StreamClosed     h2Error = 0x5
	h2FrameSizeError   h2Error = 0x6
	h2RefusedStream    h2Error = 0x7
	h2EnhanceYourCalm  h2Error = 0xb
)

// clientsFault reports whether a server that resets a stream with the code says that the
// client broke the protocol.
func (e h2Error) clientsFault() bool {
	switch e {
	case h2ProtocolError, h2FlowControlError, h2StreamClosed, h2FrameSizeError, h2RefusedStream:
		return true
	}
	return false
}

// h2Frame is the header of a frame.
type h2Frame struct {
	kind   byte
	flags  byte
	length int // of the payload
	stream uint32
}

// h2Walk finds the headers of the frames in a stream of bytes that comes in parts. The zero
// value expects a header.
type h2Walk struct {
	skip   int // bytes of a payload, or of the preface, that are to come
	header [h2HeaderBytes]byte
	have   int // of header
}

// step takes bytes off the front of b: the rest of a payload, or of a header. frame is
// valid if a header is whole with them.
func (w *h2Walk) step(b []byte) (n int, frame h2Frame, whole bool) {
	if w.skip > 0 {
		n = min(w.skip, len(b))
		w.skip -= n
		return n, frame, false
	}
	n = copy(w.header[w.have:], b)
	if w.have += n; w.have < h2HeaderBytes {
		return n, frame, false
	}
	w.have = 0
	frame = h2Frame{
		kind: w.header[3], flags: w.header[4],
		length: int(w.header[0])<<16 | int(w.header[1])<<8 | int(w.header[2]),
		stream: binary.BigEndian.Uint32(w.header[5:]) & math.MaxInt32,
	}
	w.skip = frame.length
	return n, frame, true
}

// between reports whether what comes next is a header.
func (w *h2Walk) between() bool { return w.skip == 0 && w.have == 0 }

// appendGoAway appends the frame that ends a connection and says why.
func appendGoAway(b []byte, last uint32, code h2Error, why string) []byte {
	length := 8 + len(why)
	b = append(b, byte(length>>16), byte(length>>8), byte(length), h2GoAway, 0, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, why...)
}

// floodError ends a connection whose client makes work and asks for nothing.
type floodError struct{ what string }

func (e *floodError) Error() string {
	return fmt.Sprintf("too many %s on this connection; open fewer, or wait for answers", e.what)
}
