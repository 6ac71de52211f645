package workload

const (
	// KeyBytes is the length of a key that is put, unless a run has longer ones: its
	// number in decimal with leading zeros, as in the articles.
	KeyBytes = 16
	// MaxKeyBytes bounds the keys of a run; one that is never put has a byte more.
	MaxKeyBytes = 4095
	// MaxKeys is the count of numbers of KeyBytes digits.
	MaxKeys = 10_000_000_000_000_000
)

// putKey fills dst with the key of this number.
func putKey(dst []byte, id uint64) {
	i := len(dst)
	for ; id >= 10; i -= 2 {
		pair := id % 100
		id /= 100
		dst[i-1] = '0' + byte(pair%10)
		dst[i-2] = '0' + byte(pair/10)
	}
	if id > 0 {
		i--
		dst[i] = '0' + byte(id)
	}
	for i--; i >= 0; i-- {
		dst[i] = '0'
	}
}

// putAbsentKey fills dst with a key that is never put. It is one byte longer than a real key
// and sorts immediately after the one with this number, so that a store must search
// there to find that it is absent.
func putAbsentKey(dst []byte, id uint64) {
	last := len(dst) - 1
	putKey(dst[:last], id)
	dst[last] = '!'
}
