package service

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/kv"
)

// A page token says where a scan goes on:
//
//	token = base64url( u8 direction | last key returned | u32 crc32c )
//
// The checksum, little-endian, is over the range that was asked for and all that
// stands before it, so that a token which was cut, changed or used with another
// range or direction is refused and never silently skips keys. It is not secret: the
// client may scan the range anyway.
const (
	pageTokenForward = 1
	pageTokenReverse = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func encodePageToken(r kv.Range, reverse bool, last []byte) string {
	direction := byte(pageTokenForward)
	if reverse {
		direction = pageTokenReverse
	}
	token := append(make([]byte, 0, 1+len(last)+crc32.Size), direction)
	token = append(token, last...)
	token = binary.LittleEndian.AppendUint32(token, pageTokenSum(r, token))
	return base64.RawURLEncoding.EncodeToString(token)
}

// decodePageToken returns the part of r that a scan in that direction has not reached once
// it has returned the token's key.
func decodePageToken(r kv.Range, reverse bool, text string, l kv.Limits) (kv.Range, error) {
	if base64.RawURLEncoding.DecodedLen(len(text)) > 1+l.KeyBytes+crc32.Size {
		return kv.Range{}, Invalid(errPageToken)
	}
	token, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(token) <= 1+crc32.Size {
		return kv.Range{}, Invalid(errPageToken)
	}
	// There is one token for each place of a scan, so making it again checks all of
	// it: direction, checksum and spelling.
	last := token[1 : len(token)-crc32.Size]
	if !r.Contains(last) || encodePageToken(r, reverse, last) != text {
		return kv.Range{}, Invalid(errPageToken)
	}
	if reverse {
		return kv.Range{Start: r.Start, End: bytes.Clone(last)}, nil
	}
	// The first key after last in byte order.
	return kv.Range{Start: append(bytes.Clone(last), 0), End: r.End}, nil
}

func pageTokenSum(r kv.Range, body []byte) uint32 {
	var length [8]byte
	sum := uint32(0)
	for _, part := range [...][]byte{r.Start, r.End, body} {
		binary.LittleEndian.PutUint64(length[:], uint64(len(part)))
		sum = crc32.Update(sum, castagnoli, length[:])
		sum = crc32.Update(sum, castagnoli, part)
	}
	return sum
}
