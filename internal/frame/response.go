package frame

import (
	"unicode/utf8"

	"google.golang.org/grpc/mem"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// The fields of PipelineResponse and of its parts.
const (
	responseResults   = 1<<3 | wireBytes
	responseGoingAway = 2<<3 | wireVarint
	responseFrame     = 3<<3 | wireBytes

	resultTag    = 1<<3 | wireVarint
	resultStatus = 2<<3 | wireBytes
	resultGet    = 3<<3 | wireBytes
	resultPut    = 4<<3 | wireBytes
	resultDelete = 5<<3 | wireBytes

	bodyFound = 1<<3 | wireBytes // the item of a GetResponse, the previous one in the others
	bodyMeta  = 2<<3 | wireBytes

	metaVersion      = 1<<3 | wireVarint
	metaDeduplicated = 3<<3 | wireVarint

	statusCode       = 1<<3 | wireVarint
	statusReason     = 2<<3 | wireBytes
	statusMessage    = 3<<3 | wireBytes
	statusRetryAfter = 4<<3 | wireVarint
	statusVersion    = 5<<3 | wireVarint
)

// Result is the answer to one operation. With Code 0 it is a success of the given kind;
// otherwise a failure, of which only Tag, Version and the fields from Code on are sent.
type Result struct {
	Tag  uint64 // in a compact frame its position, below MaxOps
	Kind Kind
	// Skipped: the client cancelled the operation, and it was not performed. Only in
	// compact frames; no other field is set.
	Skipped bool
	// Version is the version that a write committed at, or that a read is valid at,
	// found or not. After a failed condition it is the version that was found.
	Version uint64
	// Deduplicated: an earlier attempt at the write was applied, at that version.
	Deduplicated bool

	// HasPrevious: the write found a previous item and was asked to return it.
	HasPrevious bool
	// Value, ItemVersion and TTLMillis are what a Get found, or a write if HasPrevious
	// is set.
	Value       []byte
	ItemVersion uint64
	TTLMillis   uint64 // 0: never expires

	Code             int32
	Reason           string
	Message          string
	RetryAfterMillis uint32
	// Details are figures of the failure of a call; only in compact frames.
	Details []Detail
}

// Response is a PipelineResponse, or a compact frame by itself. The zero value is
// empty. It is reused frame by frame. Not safe for concurrent use.
type Response struct {
	Results   []Result
	GoingAway bool

	// Compact: it answers a compact frame, as one. The fields below apply to such a
	// frame.
	Compact bool
	// Refused: the server closes the connection, for the reason in the only result.
	Refused bool
	ID      uint32
	// Timings are the nanoseconds of each Timing, if Request.Timed is set.
	Timings []uint64

	// Lender, unless nil, gets Lent bytes back when the transport no longer needs the
	// encoded response.
	Lender Lender
	Lent   int64

	// memory holds the values of a decoded frame.
	memory memory
}

// Release frees the memory of a decoded frame, and with it the values of Results. It
// keeps the slice of Results for the next frame.
func (r *Response) Release() {
	r.memory.release()
	clear(r.Results)
	*r = Response{Results: r.Results[:0], Timings: r.Timings[:0], memory: r.memory}
}

// Bytes returns the size of a decoded frame.
func (r *Response) Bytes() int { return r.memory.len() }

// encode encodes the response as a message.
func (r *Response) encode() mem.BufferSlice {
	pool := Buffers
	least := 0
	if r.Lender != nil {
		pool, least = &lentPool{r.Lender, r.Lent}, leastCounted
	}
	if !r.Compact || r.GoingAway {
		return encode(max(r.size(), least), r.append, pool)
	}
	data := pool.Get(max(fieldBytes+r.SizeBound(), least))
	*data = r.AppendCompact((*data)[:fieldBytes])
	n := len(*data) - fieldBytes
	front := fieldSize(n)
	putField((*data)[fieldBytes-front:], responseFrame, n)
	whole := mem.NewBuffer(data, pool)
	message := whole.Slice(fieldBytes-front, whole.Len())
	whole.Free()
	return mem.BufferSlice{message}
}

func (r *Response) size() int {
	n := sizeUint(responseGoingAway, asUint(r.GoingAway))
	for i := range r.Results {
		n += sizeMessage(responseResults, r.Results[i].size())
	}
	return n
}

func (r *Response) append(b []byte) []byte {
	for i := range r.Results {
		result := &r.Results[i]
		b = result.append(appendHeader(b, responseResults, result.size()))
	}
	return appendUint(b, responseGoingAway, asUint(r.GoingAway))
}

func (r *Result) size() int {
	if r.Code != 0 {
		return sizeUint(resultTag, r.Tag) + sizeMessage(resultStatus, r.statusSize())
	}
	return sizeUint(resultTag, r.Tag) + sizeMessage(r.bodyKey(), r.bodySize())
}

func (r *Result) append(b []byte) []byte {
	b = appendUint(b, resultTag, r.Tag)
	if r.Code != 0 {
		return r.appendStatus(appendHeader(b, resultStatus, r.statusSize()))
	}
	b = appendHeader(b, r.bodyKey(), r.bodySize())
	if r.hasItem() {
		b = appendHeader(b, bodyFound, r.itemSize())
		b = appendBytes(b, itemValue, r.Value)
		b = appendUint(b, itemVersion, r.ItemVersion)
		b = appendUint(b, itemTTL, r.TTLMillis)
	}
	b = appendHeader(b, bodyMeta, r.metaSize())
	b = appendUint(b, metaVersion, r.Version)
	return appendUint(b, metaDeduplicated, asUint(r.Deduplicated))
}

func (r *Result) hasItem() bool { return r.Kind == Get || r.HasPrevious }

// bodyKey returns the field of the response: one above that of the request.
func (r *Result) bodyKey() key { return key(r.Kind+1)<<3 | wireBytes }

func (r *Result) bodySize() int {
	n := sizeMessage(bodyMeta, r.metaSize())
	if r.hasItem() {
		n += sizeMessage(bodyFound, r.itemSize())
	}
	return n
}

func (r *Result) itemSize() int {
	return sizeBytes(itemValue, r.Value) + sizeUint(itemVersion, r.ItemVersion) + sizeUint(itemTTL, r.TTLMillis)
}

func (r *Result) metaSize() int {
	return sizeUint(metaVersion, r.Version) + sizeUint(metaDeduplicated, asUint(r.Deduplicated))
}

func (r *Result) statusSize() int {
	return sizeUint(statusCode, uint64(r.Code)) +
		sizeBytes(statusReason, r.Reason) +
		sizeBytes(statusMessage, r.Message) +
		sizeUint(statusRetryAfter, uint64(r.RetryAfterMillis)) +
		sizeUint(statusVersion, r.Version)
}

func (r *Result) appendStatus(b []byte) []byte {
	b = appendUint(b, statusCode, uint64(r.Code))
	b = appendBytes(b, statusReason, r.Reason)
	b = appendBytes(b, statusMessage, r.Message)
	b = appendUint(b, statusRetryAfter, uint64(r.RetryAfterMillis))
	return appendUint(b, statusVersion, r.Version)
}

// decode decodes a message. Values point into data.
func (r *Response) decode(data []byte) error {
	r.Results, r.GoingAway = r.Results[:0], false
	var compact []byte
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case responseResults:
			r.Results = append(r.Results, Result{})
			if err := r.Results[len(r.Results)-1].decode(c.bytes); err != nil {
				return err
			}
		case responseGoingAway:
			r.GoingAway = c.uint != 0
		case responseFrame:
			compact = c.bytes
		}
	}
	if len(compact) == 0 || c.bad {
		return c.err()
	}
	if len(r.Results) > 0 {
		return errTwoFormats
	}
	goingAway := r.GoingAway
	if err := r.DecodeCompact(compact); err != nil {
		return err
	}
	r.GoingAway = r.GoingAway || goingAway
	return nil
}

func (r *Result) decode(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch c.key {
		case resultTag:
			r.Tag = c.uint
		case resultStatus:
			err = r.decodeStatus(c.bytes)
		case resultGet, resultPut, resultDelete:
			err = r.decodeBody(Kind(c.key.number()-1), c.bytes)
		}
		if err != nil {
			return err
		}
	}
	return c.err()
}

func (r *Result) decodeBody(kind Kind, data []byte) error {
	if r.Kind != kind {
		*r = Result{
			Tag: r.Tag, Kind: kind,
			Code: r.Code, Reason: r.Reason, Message: r.Message, RetryAfterMillis: r.RetryAfterMillis,
		}
	}
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch c.key {
		case bodyFound:
			r.HasPrevious = kind != Get
			err = r.decodeItem(c.bytes)
		case bodyMeta:
			err = r.decodeMeta(c.bytes)
		}
		if err != nil {
			return err
		}
	}
	return c.err()
}

func (r *Result) decodeItem(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case itemValue:
			r.Value = c.bytes
		case itemVersion:
			r.ItemVersion = c.uint
		case itemTTL:
			r.TTLMillis = c.uint
		}
	}
	return c.err()
}

func (r *Result) decodeMeta(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case metaVersion:
			r.Version = c.uint
		case metaDeduplicated:
			r.Deduplicated = c.uint != 0
		}
	}
	return c.err()
}

func (r *Result) decodeStatus(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case statusCode:
			r.Code = int32(c.uint)
		case statusReason:
			c.text(&r.Reason)
		case statusMessage:
			c.text(&r.Message)
		case statusRetryAfter:
			r.RetryAfterMillis = uint32(c.uint)
		case statusVersion:
			r.Version = c.uint
		}
	}
	return c.err()
}

// text copies a string field. An absent key is a frequent answer, so its reason is not
// allocated.
func (c *cursor) text(to *string) {
	switch {
	case string(c.bytes) == kvdpb.ReasonKeyNotFound:
		*to = kvdpb.ReasonKeyNotFound
	case utf8.Valid(c.bytes):
		*to = string(c.bytes)
	default:
		c.bad = true
	}
}
