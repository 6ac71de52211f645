package frame

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/grpc/codes"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// maxResultBytes bounds the encoding of a result without its value and texts: head,
// gap, the version of the answer and that of the item, a time to live and two lengths.
// A failure needs less.
const maxResultBytes = 1 + binary.MaxVarintLen16 + 3*binary.MaxVarintLen64 + 2*binary.MaxVarintLen32

// Read releases the previous frame and reads a compact one of at most limit bytes from
// a connection, like Request.Read.
func (r *Response) Read(from *bufio.Reader, limit int) error {
	r.Release()
	data, err := r.memory.read(from, limit)
	if err != nil {
		return err
	}
	return r.DecodeCompact(data)
}

// SizeBound returns an upper bound of the size as a compact frame.
func (r *Response) SizeBound() int {
	n := headerBytes + 1 + len(r.Timings)*binary.MaxVarintLen64
	for i := range r.Results {
		result := &r.Results[i]
		n += maxResultBytes + len(result.Value) + len(result.Reason) + len(result.Message) + 1 + result.detailsBound()
	}
	return n
}

// AppendCompact appends the response as a whole compact frame. A response that is
// GoingAway has no results; one that is Refused has exactly one. The tags of Results
// are positions in the request frame, in ascending order. The kind of a success is not
// sent: it is that of the operation.
func (r *Response) AppendCompact(b []byte) []byte {
	h := header{kind: answerFrame, count: len(r.Results), id: r.ID}
	switch {
	case r.GoingAway:
		h.kind = goingAwayFrame
	case r.Refused:
		h.kind = refusedFrame
	}
	if (h.count == 0) != r.GoingAway || h.count > MaxOps {
		panic(fmt.Sprintf("frame: %d results in a frame of %v", h.count, h.kind))
	}
	if h.count > 0 {
		h.extra = uint32(r.Results[0].Tag)
		if r.Results[h.count-1].Tag != uint64(h.extra)+uint64(h.count)-1 {
			h.flags |= flagSparse
		}
	}
	start := len(b)
	b = append(b, make([]byte, headerBytes)...)
	if len(r.Timings) > 0 {
		h.flags |= flagTimed
		b = append(b, byte(len(r.Timings)))
		for _, ns := range r.Timings {
			b = binary.AppendUvarint(b, ns)
		}
	}
	next := uint64(h.extra)
	for i := range r.Results {
		result := &r.Results[i]
		if result.Tag < next || result.Tag >= MaxOps {
			panic(fmt.Sprintf("frame: position %d after %d", result.Tag, next))
		}
		if h.flags&flagSparse != 0 {
			b = binary.AppendUvarint(b, result.Tag-next)
		}
		next = result.Tag + 1
		b = result.appendCompact(b)
	}
	h.put(b[start:], len(b)-start)
	return b
}

func (r *Result) appendCompact(b []byte) []byte {
	var flags byte
	if r.Deduplicated {
		flags = headDeduplicated
	}
	switch {
	case r.Skipped:
		return append(b, headSkipped)
	case r.Code == int32(codes.NotFound) && r.Reason == kvdpb.ReasonKeyNotFound:
		b = append(b, headNotFound)
		return binary.AppendUvarint(b, r.Version)
	case r.Code != 0:
		head := byte(headFailed)
		if len(r.Details) > 0 {
			head |= headDetails
		}
		b = append(b, head)
		b = binary.AppendUvarint(b, uint64(uint32(r.Code)))
		b = binary.AppendUvarint(b, r.Version)
		b = binary.AppendUvarint(b, uint64(r.RetryAfterMillis))
		b = appendCompactBytes(appendCompactBytes(b, r.Reason), r.Message)
		if len(r.Details) > 0 {
			b = r.appendDetails(b)
		}
		return b
	case !r.hasItem():
		b = append(b, headDone|flags)
		return binary.AppendUvarint(b, r.Version)
	}
	if r.TTLMillis != 0 {
		flags |= headItemTTL
	}
	b = append(b, headItem|flags)
	b = binary.AppendUvarint(b, r.Version)
	b = binary.AppendUvarint(b, r.ItemVersion)
	if r.TTLMillis != 0 {
		b = binary.AppendUvarint(b, r.TTLMillis)
	}
	return appendCompactBytes(b, r.Value)
}

// DecodeCompact decodes a whole compact frame. Values point into frame. The kind of a
// success is left 0, and HasPrevious says whether the result has an item, of a read or
// of a write. After an error r has no results. It allocates nothing but room for
// Results and Timings, and the message of a failure.
func (r *Response) DecodeCompact(frame []byte) error {
	r.Results, r.Timings = r.Results[:0], r.Timings[:0]
	r.Compact, r.GoingAway, r.Refused = true, false, false
	h, body, err := decodeHeader(frame)
	if err != nil {
		return err
	}
	r.ID = h.id
	switch h.kind {
	case answerFrame:
		err = h.check(answerFlags, len(body.rest), minResultBytes)
	case refusedFrame:
		r.Refused = true
		if err = h.check(0, len(body.rest), minResultBytes); h.count > 1 {
			err = malformed("a refusal with several results")
		}
	case goingAwayFrame:
		r.GoingAway = true
		if h.count|int(h.flags) != 0 {
			err = malformed("going away with results")
		}
	default:
		err = malformed("an answer of kind %v", h.kind)
	}
	if err != nil {
		return err
	}
	if h.flags&flagTimed != 0 {
		r.cutTimings(&body)
	}
	r.Results = slices.Grow(r.Results, h.count)[:h.count]
	r.cutResults(&body, &h)
	if err := body.end(); err != nil {
		r.Results, r.Timings = r.Results[:0], r.Timings[:0]
		return err
	}
	return nil
}

func (r *Response) cutTimings(c *cutter) {
	n := int(c.byte())
	if n == 0 || n > len(c.rest) {
		c.fail(errShort)
		return
	}
	for range n {
		r.Timings = append(r.Timings, c.uvarint())
	}
}

func (r *Response) cutResults(c *cutter, h *header) {
	next := uint64(h.extra)
	for i := range r.Results {
		if h.flags&flagSparse != 0 {
			next += c.number(MaxOps)
		}
		if next >= MaxOps {
			c.fail(errNumber)
		}
		result := &r.Results[i]
		*result = Result{Tag: next}
		next++
		if result.cut(c); c.err != nil {
			return
		}
	}
}

func (r *Result) cut(c *cutter) {
	head := c.byte()
	switch {
	case head == headSkipped:
		r.Skipped = true
	case head == headNotFound:
		r.Code, r.Reason, r.Version = int32(codes.NotFound), kvdpb.ReasonKeyNotFound, c.uvarint()
	case head&^headDetails == headFailed:
		r.cutFailure(c)
		if head&headDetails != 0 {
			r.cutDetails(c)
		}
	case head&^(headDeduplicated) == headDone:
		r.Version, r.Deduplicated = c.uvarint(), head&headDeduplicated != 0
	case head&^(headDeduplicated|headItemTTL) == headItem:
		r.HasPrevious, r.Deduplicated = true, head&headDeduplicated != 0
		r.Version, r.ItemVersion = c.uvarint(), c.uvarint()
		if head&headItemTTL != 0 {
			r.TTLMillis = c.uvarint()
		}
		r.Value = c.bytes()
	default:
		c.fail(errHead)
	}
}

func (r *Result) cutFailure(c *cutter) {
	if r.Code = int32(c.number(math.MaxInt32)); r.Code == 0 {
		c.fail(malformed("a failure without a code"))
	}
	r.Version = c.uvarint()
	r.RetryAfterMillis = uint32(c.number(math.MaxUint32))
	r.Reason, r.Message = reasonOf(c.bytes()), string(c.bytes())
}

// reasonOf returns the reason as a string. Reasons that an overloaded server sends in
// large numbers are not allocated.
func reasonOf(b []byte) string {
	switch string(b) {
	case kvdpb.ReasonOverloaded:
		return kvdpb.ReasonOverloaded
	case kvdpb.ReasonDeadlineExceeded:
		return kvdpb.ReasonDeadlineExceeded
	case kvdpb.ReasonConditionFailed:
		return kvdpb.ReasonConditionFailed
	}
	return string(b)
}
