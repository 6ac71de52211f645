package service

import "encoding/binary"

// message is the first message of a stream of gRPC as far as it has come: a prefix of a flag
// and a length, and that many bytes. The zero value is one of which nothing has come.
type message struct {
	prefix [messagePrefix]byte
	have   int   // of prefix
	come   int64 // of what follows, and what comes after that
}

// take takes what has come.
func (m *message) take(b []byte) {
	n := copy(m.prefix[m.have:], b)
	m.have += n
	m.come += int64(len(b) - n)
}

// known reports whether the length is known.
func (m *message) known() bool { return m.have == messagePrefix }

// length of the message without its prefix, once it is known.
func (m *message) length() int64 { return int64(binary.BigEndian.Uint32(m.prefix[1:])) }

// whole reports whether all of it has come.
func (m *message) whole() bool { return m.known() && m.come >= m.length() }
