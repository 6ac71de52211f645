package frame

import (
	"bufio"
	"encoding/binary"
	"math"
	"slices"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Read releases the previous frame and reads a compact one of at most limit bytes from
// a connection. Errors: ErrMalformed, ErrTooLarge, or an error of the connection;
// io.EOF at its end, io.ErrUnexpectedEOF inside a frame.
//
// The buffer of from must have at least 32 bytes.
func (r *Request) Read(from *bufio.Reader, limit int) error {
	r.Release()
	data, err := r.memory.read(from, limit)
	if err != nil {
		return err
	}
	return r.DecodeCompact(data)
}

// Discard reads a frame like Read but does not keep it, and needs no memory for it. Of
// its operations only the number is known, and whether they are reads, writes or calls;
// writes are then reported as a put.
func (r *Request) Discard(from *bufio.Reader, limit int) error {
	r.Release()
	start, err := from.Peek(headerBytes)
	if err != nil {
		return unexpected(err, start)
	}
	n, err := frameLength(start, limit)
	if err != nil {
		return err
	}
	var head [headerBytes]byte
	copy(head[:], start)
	if err := r.discarded(head[:], n); err != nil {
		return err
	}
	if _, err := from.Discard(n); err != nil {
		return unexpected(err, head[:])
	}
	return nil
}

// discarded makes r represent a discarded request of n bytes with this header.
func (r *Request) discarded(head []byte, n int) error {
	h, err := parseHeader(head)
	if err != nil {
		return err
	}
	if err := h.checkRequest(n - headerBytes); err != nil {
		return err
	}
	r.ID, r.Compact = h.id, true
	r.discard(&h)
	return nil
}

// discard keeps the number of operations alone, and no memory for them.
func (r *Request) discard(h *header) {
	op := Op{Kind: Put}
	switch h.kind {
	case ReadFrame:
		op.Kind = Get
	case CallFrame:
		op.Kind = Call
	}
	r.Discarded, r.Ops = h.count, []Op{op}
}

// DecodeCompact decodes a whole compact frame. Keys and values point into frame. After
// an error r has no operations. It allocates nothing but room for Ops.
func (r *Request) DecodeCompact(frame []byte) error {
	r.Ops, r.Compact, r.Discarded, r.Timed, r.OneVersion = r.Ops[:0], true, 0, false, false
	h, body, err := decodeHeader(frame)
	r.ID = h.id
	if err != nil {
		return err
	}
	if err := h.checkRequest(len(body.rest)); err != nil {
		return err
	}
	if r.Room != nil && !r.Room(h.count) {
		r.discard(&h)
		return nil
	}
	r.Timed, r.OneVersion = h.flags&flagTimed != 0, h.flags&flagOneVersion != 0
	r.Ops = slices.Grow(r.Ops, h.count)[:h.count]
	switch h.kind {
	case ReadFrame:
		r.cutReads(&body, &h)
	case WriteFrame:
		r.cutWrites(&body, &h)
	case CallFrame:
		r.cutCalls(&body, &h)
	}
	if err := body.end(); err != nil {
		r.Ops = r.Ops[:0]
		return err
	}
	return nil
}

func (h *header) checkRequest(rest int) error {
	switch h.kind {
	case ReadFrame:
		return h.check(readFlags, rest, minOpBytes)
	case WriteFrame:
		return h.check(writeFlags, rest, minOpBytes)
	case CallFrame:
		return h.check(0, rest, minCallBytes)
	}
	return malformed("a request of kind %v", h.kind)
}

func (r *Request) cutReads(c *cutter, h *header) {
	for i := range r.Ops {
		op := &r.Ops[i]
		*op = Op{Tag: uint64(i), Kind: Get, TimeoutMillis: h.extra}
		head := c.byte()
		if head&headKind > headGet || head&^(headKind|headEpoch|headAtVersion|headTimeout) != 0 {
			c.fail(errHead)
		}
		op.Skipped = head&headKind == headSkippedGet
		if head&headAtVersion != 0 {
			op.AtVersion = c.uvarint()
			if r.OneVersion {
				c.fail(errHead)
			}
		}
		if head&headEpoch != 0 {
			op.Epoch = c.fixed64()
			if head&headAtVersion == 0 {
				c.fail(errHead)
			}
		}
		op.cutTimeout(c, head)
		op.cutKey(c)
		if c.err != nil {
			return
		}
	}
}

func (r *Request) cutWrites(c *cutter, h *header) {
	var clientID, base uint64
	if h.flags&flagNamed != 0 {
		if len(c.rest) < nameBytes {
			c.fail(errShort)
			return
		}
		clientID, base = binary.LittleEndian.Uint64(c.rest), binary.LittleEndian.Uint64(c.rest[8:])
		c.rest = c.rest[nameBytes:]
	}
	durability := kvdpb.Durability(h.flags & durabilityMask >> durabilityShift)
	for i := range r.Ops {
		op := &r.Ops[i]
		*op = Op{Tag: uint64(i), Kind: Delete, TimeoutMillis: h.extra, Options: Options{Durability: durability}}
		head := c.byte()
		switch head & headKind {
		case headPut:
			op.Kind = Put
		case headSkippedPut:
			op.Kind, op.Skipped = Put, true
		case headSkippedDelete:
			op.Skipped = true
		}
		if head&headTTL != 0 {
			op.TTLMillis = c.uvarint()
			if op.Kind != Put {
				c.fail(errHead)
			}
		}
		if head&headCondition != 0 {
			op.Condition.cut(c)
		}
		op.ReturnPrevious = head&headPrevious != 0
		if head&headNamed != 0 {
			op.ClientID, op.Sequence = clientID, base+c.uvarint()
			if h.flags&flagNamed == 0 {
				c.fail(errNoName)
			}
		}
		if head&headRetried != 0 {
			op.Retried, op.KnownVersion = true, c.uvarint()
		}
		op.cutTimeout(c, head)
		op.cutKey(c)
		if op.Kind == Put {
			op.Value = c.bytes()
		}
		if c.err != nil {
			return
		}
	}
}

func (o *Op) cutTimeout(c *cutter, head byte) {
	if head&headTimeout != 0 {
		o.TimeoutMillis = uint32(c.number(math.MaxUint32))
	}
}

func (o *Op) cutKey(c *cutter) {
	if o.Key = c.bytes(); len(o.Key) == 0 {
		c.fail(errNoKey)
	}
}

func (d *Condition) cut(c *cutter) {
	d.Kind = ConditionKind(c.byte())
	switch d.Kind {
	case MustExist, MustNotExist:
	case VersionEquals:
		d.Version = c.uvarint()
	case ValueEquals:
		d.Value = c.bytes()
	default:
		c.fail(malformed("unknown condition %d", d.Kind))
	}
}
