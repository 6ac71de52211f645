package grpcapi

import "encoding/binary"

// message is a message of a stream of gRPC as far as it has come: a prefix of a flag and a
// length, and that many bytes. The zero value is one of which nothing has come.
type message struct {
	prefix [messagePrefix]byte
	have   int   // of prefix
	come   int64 // of what follows
}

// messagePrefix is what gRPC has before each message.
const messagePrefix = 5

// take takes what has come of the message and returns what is left of b.
func (m *message) take(b []byte) (rest []byte) {
	n := copy(m.prefix[m.have:], b)
	if m.have += n; !m.known() {
		return nil
	}
	body := min(int64(len(b)-n), m.length()-m.come)
	m.come += body
	return b[n+int(body):]
}

// known reports whether the length is known.
func (m *message) known() bool { return m.have == messagePrefix }

// length of the message without its prefix, once it is known.
func (m *message) length() int64 { return int64(binary.BigEndian.Uint32(m.prefix[1:])) }

// whole reports whether all of it has come.
func (m *message) whole() bool { return m.known() && m.come == m.length() }
