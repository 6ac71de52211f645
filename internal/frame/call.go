package frame

import (
	"encoding/binary"
	"fmt"
)

// Method is what a call asks for: a method of kv.proto, whose request and response messages the
// call and its answer carry.
type Method uint8

// The methods of calls. MethodWrite is of atomic writes only.
const (
	MethodWrite           Method = 1
	MethodCommit          Method = 2
	MethodExecute         Method = 3
	MethodBeginSnapshot   Method = 4
	MethodKeepSnapshot    Method = 5
	MethodReleaseSnapshot Method = 6

	lastMethod = MethodReleaseSnapshot
)

var methodNames = [...]string{"none", "Write", "Commit", "Execute", "BeginSnapshot", "KeepSnapshot", "ReleaseSnapshot"}

func (m Method) String() string {
	if m <= lastMethod {
		return methodNames[m]
	}
	return fmt.Sprintf("method(%d)", uint8(m))
}

// The head of a call: its method, this bit and headTimeout.
const (
	headMethod      = 0xf
	headSkippedCall = 1 << 4
)

// minCallBytes is the smallest encoding of a call.
const minCallBytes = 2

func (o *Op) appendCall(b []byte) []byte {
	head := byte(o.Method)
	if o.Method == 0 || o.Method > lastMethod {
		panic(fmt.Sprintf("frame: a call of %v", o.Method))
	}
	if o.Skipped {
		head |= headSkippedCall
	}
	if o.TimeoutMillis != 0 {
		b = append(b, head|headTimeout)
		b = binary.AppendUvarint(b, uint64(o.TimeoutMillis))
	} else {
		b = append(b, head)
	}
	return appendCompactBytes(b, o.Value)
}

func (r *Request) cutCalls(c *cutter, h *header) {
	for i := range r.Ops {
		op := &r.Ops[i]
		*op = Op{Tag: uint64(i), Kind: Call, TimeoutMillis: h.extra}
		head := c.byte()
		op.Method, op.Skipped = Method(head&headMethod), head&headSkippedCall != 0
		if op.Method == 0 || op.Method > lastMethod || head&^(headMethod|headSkippedCall|headTimeout) != 0 {
			c.fail(errHead)
		}
		op.cutTimeout(c, head)
		op.Value = c.bytes()
		if c.err != nil {
			return
		}
	}
}

// Detail is one figure of a failure, as the metadata of gRPC's ErrorInfo has it.
type Detail struct{ Name, Value string }

// maxDetails bounds the details of one failure.
const maxDetails = 16

func (r *Result) detailsBound() (n int) {
	for _, d := range r.Details {
		n += 2*binary.MaxVarintLen32 + len(d.Name) + len(d.Value)
	}
	return n
}

func (r *Result) appendDetails(b []byte) []byte {
	if len(r.Details) > maxDetails {
		panic("frame: a failure with too many details")
	}
	b = append(b, byte(len(r.Details)))
	for _, d := range r.Details {
		b = appendCompactBytes(appendCompactBytes(b, d.Name), d.Value)
	}
	return b
}

func (r *Result) cutDetails(c *cutter) {
	n := int(c.byte())
	if n == 0 || n > maxDetails {
		c.fail(malformed("a failure with %d details", n))
		return
	}
	for range n {
		r.Details = append(r.Details, Detail{string(c.bytes()), string(c.bytes())})
	}
}
