package kv

import "encoding/binary"

// KeyWord returns the eight bytes of key from depth on as a big-endian number, padded
// with zeros. Among keys with the same first depth bytes, the order of the words never
// contradicts the order of the keys; different keys may have equal words.
func KeyWord(key []byte, depth int) uint64 {
	if len(key) >= depth+8 {
		return binary.BigEndian.Uint64(key[depth:])
	}
	if len(key) >= 8 && len(key) > depth { // its last bytes, shifted to the front
		return binary.BigEndian.Uint64(key[len(key)-8:]) << (8 * (depth + 8 - len(key)))
	}
	var word [8]byte
	copy(word[:], key[min(depth, len(key)):])
	return binary.BigEndian.Uint64(word[:])
}

// CommonPrefix returns the length of the longest common prefix of a and b.
func CommonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n && binary.LittleEndian.Uint64(a[i:]) == binary.LittleEndian.Uint64(b[i:]) {
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
