package frame

import (
	"unicode/utf8"

	"google.golang.org/grpc/mem"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// The fields of PipelineResponse and of what it is made of.
const (
	responseResults   = 1<<3 | wireBytes
	responseGoingAway = 2<<3 | wireVarint

	resultTag    = 1<<3 | wireVarint
	resultStatus = 2<<3 | wireBytes
	resultGet    = 3<<3 | wireBytes
	resultPut    = 4<<3 | wireBytes
	resultDelete = 5<<3 | wireBytes

	bodyGetItem = 1<<3 | wireBytes // of GetResponse
	bodyMeta    = 2<<3 | wireBytes // of all three responses

	metaVersion = 1<<3 | wireVarint

	statusCode       = 1<<3 | wireVarint
	statusReason     = 2<<3 | wireBytes
	statusMessage    = 3<<3 | wireBytes
	statusRetryAfter = 4<<3 | wireVarint
	statusVersion    = 5<<3 | wireVarint
)

// Result is the answer to one operation: with Code 0 a success of the given
// kind, else a failure, of which only Tag, Version and the fields from Code on
// are sent.
type Result struct {
	Tag  uint64
	Kind Kind
	// Version is what a write committed at, or what a read, also one that found
	// nothing, is valid at.
	Version uint64
	// Value and ItemVersion are what a Get found.
	Value       []byte
	ItemVersion uint64

	Code             int32
	Reason           string
	Message          string
	RetryAfterMillis uint32
}

// Response is a PipelineResponse. The zero value is empty. It is used again
// frame by frame, by one goroutine at a time.
type Response struct {
	Results   []Result
	GoingAway bool
	// buffer holds the values of a decoded frame.
	buffer mem.Buffer
}

// Release gives back the memory of a decoded frame, and with it the values of
// Results. The memory of Results itself is kept for the next frame.
func (r *Response) Release() {
	if r.buffer != nil {
		r.buffer.Free()
		r.buffer = nil
	}
	clear(r.Results)
	r.Results, r.GoingAway = r.Results[:0], false
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

func asUint(b bool) uint64 {
	if b {
		return 1
	}
	return 0
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
	if r.Kind == Get {
		b = appendHeader(b, bodyGetItem, r.itemSize())
		b = appendBytes(b, itemValue, r.Value)
		b = appendUint(b, itemVersion, r.ItemVersion)
	}
	b = appendHeader(b, bodyMeta, r.metaSize())
	return appendUint(b, metaVersion, r.Version)
}

// bodyKey is the field of the response: one above that of the request.
func (r *Result) bodyKey() key { return key(r.Kind+1)<<3 | wireBytes }

func (r *Result) bodySize() int {
	n := sizeMessage(bodyMeta, r.metaSize())
	if r.Kind == Get {
		n += sizeMessage(bodyGetItem, r.itemSize())
	}
	return n
}

func (r *Result) itemSize() int {
	return sizeBytes(itemValue, r.Value) + sizeUint(itemVersion, r.ItemVersion)
}

func (r *Result) metaSize() int { return sizeUint(metaVersion, r.Version) }

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

// decode reads a frame. The values then point into data.
func (r *Response) decode(data []byte) error {
	r.Results, r.GoingAway = r.Results[:0], false
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case responseResults:
			r.Results = append(r.Results, Result{})
			if err := r.Results[len(r.Results)-1].decode(c.bytes); err != nil {
				return err
			}
		case responseGoingAway:
			r.GoingAway = c.varint != 0
		}
	}
	return c.err()
}

func (r *Result) decode(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch c.key {
		case resultTag:
			r.Tag = c.varint
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
		r.Kind, r.Value, r.ItemVersion, r.Version = kind, nil, 0, 0
	}
	c := cursor{rest: data}
	for c.next() {
		var err error
		switch {
		case kind == Get && c.key == bodyGetItem:
			err = r.decodeItem(c.bytes)
		case c.key == bodyMeta:
			err = decodeVersion(&r.Version, metaVersion, c.bytes)
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
			r.ItemVersion = c.varint
		}
	}
	return c.err()
}

func decodeVersion(v *uint64, k key, data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		if c.key == k {
			*v = c.varint
		}
	}
	return c.err()
}

func (r *Result) decodeStatus(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case statusCode:
			r.Code = int32(c.varint)
		case statusReason:
			c.text(&r.Reason)
		case statusMessage:
			c.text(&r.Message)
		case statusRetryAfter:
			r.RetryAfterMillis = uint32(c.varint)
		case statusVersion:
			r.Version = c.varint
		}
	}
	return c.err()
}

// text copies a string field. An absent key is an everyday answer, so its
// reason is not allocated each time.
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
