package frame

import "io"

// maxIncarnationBytes bounds the incarnation in a greeting.
const maxIncarnationBytes = 64

// AppendIncarnation appends what a server says after its preamble in VersionIncarnation: the incarnation
// of its cluster, of at most maxIncarnationBytes, or nothing.
func AppendIncarnation(b []byte, incarnation string) []byte {
	return append(append(b, byte(len(incarnation))), incarnation...)
}

// ReadIncarnation reads what AppendIncarnation has appended, and no further.
func ReadIncarnation(from io.Reader) (incarnation string, err error) {
	var b [1 + maxIncarnationBytes]byte
	if _, err := io.ReadFull(from, b[:1]); err != nil {
		return "", err
	}
	n := int(b[0])
	if n > maxIncarnationBytes {
		return "", malformed("an incarnation of %d bytes", n)
	}
	_, err = io.ReadFull(from, b[1:1+n])
	return string(b[1 : 1+n]), err
}
