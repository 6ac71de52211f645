package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// FrameKind is the kind of a compact frame: the byte after its length.
type FrameKind uint8

// The kinds of compact frames: three of requests, one to sign in, three of answers.
const (
	ReadFrame   FrameKind = 1
	WriteFrame  FrameKind = 2
	signInFrame FrameKind = 3
	// CallFrame needs VersionCalls on a connection of its own.
	CallFrame FrameKind = 4

	answerFrame    FrameKind = 0x81
	goingAwayFrame FrameKind = 0x82
	refusedFrame   FrameKind = 0x83
)

func (k FrameKind) String() string {
	switch k {
	case ReadFrame:
		return "reads"
	case WriteFrame:
		return "writes"
	case signInFrame:
		return "sign-in"
	case CallFrame:
		return "calls"
	case answerFrame:
		return "answers"
	case goingAwayFrame:
		return "going away"
	case refusedFrame:
		return "refused"
	}
	return fmt.Sprintf("frame(%#x)", uint8(k))
}

// Preamble is what a client sends first on a connection for raw frames, and what the
// server answers, in version 1. Its last byte is the version of the format.
const Preamble = "\x00kvdfrm\x01"

// ALPN is the name of the protocol of raw frames in a TLS handshake.
const ALPN = "kvd-frame/1"

// The layout of the header: see the package comment.
const (
	lengthBytes = 4
	headerBytes = 20
	nameBytes   = 16

	kindOffset     = 4
	flagsOffset    = 5
	countOffset    = 6
	idOffset       = 8
	extraOffset    = 12
	reservedOffset = 16
)

// Flags of requests.
const (
	flagNamed       = 1 << 0
	flagTimed       = 1 << 1 // also a flag of answers
	durabilityShift = 2
	durabilityMask  = 3 << durabilityShift
	flagOneVersion  = 1 << 4

	readFlags  = flagTimed | flagOneVersion
	writeFlags = flagNamed | flagTimed | durabilityMask
)

// Flags of answers.
const (
	flagSparse = 1 << 0

	answerFlags = flagSparse | flagTimed
)

// Values and bits of the head of an operation or result.
const (
	headKind = 3

	headSkippedGet = 0
	headGet        = 1
	headEpoch      = 1 << 5
	headAtVersion  = 1 << 6

	headSkippedDelete = 0
	headPut           = 1
	headDelete        = 2
	headSkippedPut    = 3
	headTTL           = 1 << 2
	headCondition     = 1 << 3
	headPrevious      = 1 << 4
	headNamed         = 1 << 5
	headRetried       = 1 << 6

	headTimeout = 1 << 7 // for reads and writes

	headDone         = 0
	headItem         = 1
	headNotFound     = 2
	headFailed       = 3
	headItemTTL      = 1 << 2
	headDetails      = 1 << 2 // of a failure
	headDeduplicated = 1 << 3
	headSkipped      = 1 << 4
)

// The smallest encodings of an operation and of a result.
const (
	minOpBytes     = 3
	minResultBytes = 1
)

// Errors of a frame that cannot be decoded, for errors.Is. The connection is unusable
// after one.
var (
	ErrMalformed = errors.New("malformed frame")
	ErrTooLarge  = errors.New("frame too large")
)

var (
	errShort      = malformed("it ends too early")
	errTrailing   = malformed("bytes after its last part")
	errNumber     = malformed("a number is too large")
	errHead       = malformed("the head of a part has unknown bits")
	errNoKey      = malformed("an operation without a key")
	errTooManyOps = fmt.Errorf("%w: more than %d operations", ErrTooLarge, MaxOps)
	errNoName     = malformed("a named write in a frame without a client")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

// frameLength returns the size of a compact frame, given at least its first lengthBytes.
// It is an error if the size exceeds limit or is less than that of a header.
func frameLength(header []byte, limit int) (n int, err error) {
	if len(header) < lengthBytes {
		return 0, errShort
	}
	rest := binary.LittleEndian.Uint32(header)
	if rest < headerBytes-lengthBytes {
		return 0, malformed("a length of %d is less than its header", rest)
	}
	if int64(rest) > int64(limit)-lengthBytes {
		return 0, fmt.Errorf("%w: %d bytes, limit is %d", ErrTooLarge, int64(rest)+lengthBytes, limit)
	}
	return int(rest) + lengthBytes, nil
}

// header is the fixed first part of a compact frame.
type header struct {
	kind  FrameKind
	flags uint8
	count int
	id    uint32
	// extra is the timeout of requests in milliseconds; in answers, the position of the
	// first result.
	extra uint32
}

// put writes the header of a frame of n bytes.
func (h *header) put(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n-lengthBytes))
	b[kindOffset] = byte(h.kind)
	b[flagsOffset] = h.flags
	binary.LittleEndian.PutUint16(b[countOffset:], uint16(h.count))
	binary.LittleEndian.PutUint32(b[idOffset:], h.id)
	binary.LittleEndian.PutUint32(b[extraOffset:], h.extra)
	binary.LittleEndian.PutUint32(b[reservedOffset:], 0)
}

// decodeHeader decodes the header of a whole frame and returns what follows it.
func decodeHeader(frame []byte) (h header, body cutter, err error) {
	n, err := frameLength(frame, math.MaxInt)
	switch {
	case err != nil:
		return h, body, err
	case n > len(frame):
		return h, body, errShort
	case n < len(frame):
		return h, body, errTrailing
	}
	h, err = parseHeader(frame)
	return h, cutter{rest: frame[headerBytes:]}, err
}

// parseHeader decodes the header at the beginning of frame.
func parseHeader(frame []byte) (h header, err error) {
	if binary.LittleEndian.Uint32(frame[reservedOffset:]) != 0 {
		return h, malformed("reserved bytes are not zero")
	}
	return header{
		kind:  FrameKind(frame[kindOffset]),
		flags: frame[flagsOffset],
		count: int(binary.LittleEndian.Uint16(frame[countOffset:])),
		id:    binary.LittleEndian.Uint32(frame[idOffset:]),
		extra: binary.LittleEndian.Uint32(frame[extraOffset:]),
	}, nil
}

// check rejects unknown flags, and a count that is out of range or that the rest of the
// frame cannot hold.
func (h *header) check(flags uint8, rest, minBytes int) error {
	switch {
	case h.flags&^flags != 0:
		return malformed("unknown flags %#x", h.flags&^flags)
	case h.count == 0:
		return malformed("it is empty")
	case h.count > MaxOps:
		return errTooManyOps
	case h.count*minBytes > rest:
		return errShort
	}
	return nil
}

// cutter decodes a frame from its front. After an error rest is empty and every part is
// zero.
type cutter struct {
	rest []byte
	err  error
}

func (c *cutter) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.rest = nil
}

func (c *cutter) byte() byte {
	if len(c.rest) == 0 {
		c.fail(errShort)
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

func (c *cutter) uvarint() uint64 {
	if len(c.rest) > 0 && c.rest[0] < 0x80 {
		v := c.rest[0]
		c.rest = c.rest[1:]
		return uint64(v)
	}
	return c.longUvarint()
}

func (c *cutter) longUvarint() uint64 {
	v, n := binary.Uvarint(c.rest)
	switch {
	case n > 0:
		c.rest = c.rest[n:]
	case n == 0:
		c.fail(errShort)
	default:
		c.fail(errNumber)
	}
	return v
}

// number decodes a uvarint of at most max.
func (c *cutter) number(max uint64) uint64 {
	v := c.uvarint()
	if v > max {
		c.fail(errNumber)
		return 0
	}
	return v
}

// fixed64 decodes eight bytes.
func (c *cutter) fixed64() uint64 {
	if len(c.rest) < 8 {
		c.fail(errShort)
		return 0
	}
	v := binary.LittleEndian.Uint64(c.rest)
	c.rest = c.rest[8:]
	return v
}

// bytes decodes a length and returns that many bytes, which point into the frame.
func (c *cutter) bytes() []byte {
	n := c.uvarint()
	if n > uint64(len(c.rest)) {
		c.fail(errShort)
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// end returns the first error, or an error if bytes are left.
func (c *cutter) end() error {
	if c.err == nil && len(c.rest) > 0 {
		return errTrailing
	}
	return c.err
}

func appendCompactBytes[T byteString](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}
