package workload

const (
	// KeyBytes is the length of every key that is put: its number in decimal with
	// leading zeros, as in the articles.
	KeyBytes = 16
	// MaxKeys is the count of such numbers.
	MaxKeys = 10_000_000_000_000_000

	absentKeyBytes = KeyBytes + 1
)

// putKey writes the key with this number to the first KeyBytes of dst.
func putKey(dst []byte, id uint64) {
	_ = dst[KeyBytes-1]
	for i := KeyBytes - 1; i > 0; i -= 2 {
		pair := id % 100
		id /= 100
		dst[i] = '0' + byte(pair%10)
		dst[i-1] = '0' + byte(pair/10)
	}
}

// putAbsentKey writes a key that is never put. It is one byte longer than a real key
// and sorts immediately after the one with this number, so that a store must search
// there to find that it is absent.
func putAbsentKey(dst []byte, id uint64) {
	putKey(dst, id)
	dst[KeyBytes] = '!'
}
