package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Decoder parses bytes that may be damaged: every result is within the bound that the
// caller gave.
//
// A reader sets Rest, makes its calls and checks Err after them. After the first
// violation Err describes it, Rest begins with the offending bytes, and all calls
// return zero. Returned slices are borrowed from Rest. Not safe for concurrent use.
type Decoder struct {
	Rest []byte // not parsed yet
	Err  error  // the first error; sticky
}

// Uvarint reads a number of at most max in its shortest form.
func (d *Decoder) Uvarint(max uint64) uint64 {
	v, n := binary.Uvarint(d.Rest)
	if d.Err != nil || n <= 0 || v > max || n > 1 && d.Rest[n-1] == 0 {
		d.refuse(v, n, max)
		return 0
	}
	d.Rest = d.Rest[n:]
	return v
}

// refuse sets Err to the reason why Uvarint rejects a number v of n bytes.
func (d *Decoder) refuse(v uint64, n int, max uint64) {
	switch {
	case n <= 0:
		d.Fail(errors.New("number is cut or too long"))
	case v > max:
		d.Fail(fmt.Errorf("number %d, want at most %d", v, max))
	default:
		d.Fail(errors.New("number is not in its shortest form"))
	}
}

// Take returns the next n bytes.
func (d *Decoder) Take(n uint64) []byte {
	if d.Err == nil && n > uint64(len(d.Rest)) {
		d.Fail(fmt.Errorf("%d bytes, but %d are left", n, len(d.Rest)))
	}
	if d.Err != nil {
		return nil
	}
	b := d.Rest[:n:n]
	d.Rest = d.Rest[n:]
	return b
}

// Bytes returns a byte string of at most max bytes that follows its length.
func (d *Decoder) Bytes(max uint64) []byte { return d.Take(d.Uvarint(max)) }

// Fail sets Err, unless it is set already.
func (d *Decoder) Fail(err error) {
	if d.Err == nil {
		d.Err = err
	}
}
