package torture

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// A value names its key and its write, and carries a checksum, so that any value
// read proves itself.
func makeValue(rng *rand.Rand, key string, n uint64) []byte {
	size := 16 + rng.IntN(400)
	if rng.IntN(100) == 0 {
		size = 64 << 10
	}
	v := make([]byte, size)
	binary.LittleEndian.PutUint64(v, n)
	for i := 12; i < len(v); i++ {
		v[i] = byte(n) ^ byte(i)
	}
	binary.LittleEndian.PutUint32(v[8:], checksum(key, v))
	return v
}

func checksum(key string, v []byte) uint32 {
	sum := crc32.ChecksumIEEE([]byte(key))
	sum = crc32.Update(sum, crc32.IEEETable, v[:8])
	return crc32.Update(sum, crc32.IEEETable, v[12:])
}

// parseValue returns the number of the write that made the value.
func parseValue(key string, v []byte) (uint64, error) {
	if len(v) < 12 || binary.LittleEndian.Uint32(v[8:]) != checksum(key, v) {
		return 0, fmt.Errorf("key %s has %d bytes that nobody wrote there", key, len(v))
	}
	return binary.LittleEndian.Uint64(v), nil
}

// state is what a key holds: the number of its last write, 0 if it is absent.
type state uint64

// oracle is what one client knows of its own keys, which no other client writes.
type oracle struct {
	acked   map[string]state // what the server acknowledged
	pending []write          // the one request in flight: all of it was applied, or nothing
	next    uint64
}

// write is one key of a request.
type write struct {
	key string
	to  state
}

// settle decides the pending request from what is there after a restart, and
// reports what was lost or torn.
func (o *oracle) settle(read func(key string) (state, error)) (lost, torn int, err error) {
	happened := 0
	for _, w := range o.pending {
		now, err := read(w.key)
		if err != nil {
			return 0, 0, err
		}
		switch now {
		case w.to:
			happened++
		case o.acked[w.key]:
		default:
			lost++
		}
	}
	if happened > 0 && happened < len(o.pending) {
		torn++
	}
	if happened > 0 {
		o.ack()
	}
	o.pending = nil
	for key, want := range o.acked {
		now, err := read(key)
		if err != nil {
			return 0, 0, err
		}
		if now != want {
			lost++
		}
	}
	return lost, torn, nil
}

// ack takes the pending request as done.
func (o *oracle) ack() {
	for _, w := range o.pending {
		o.acked[w.key] = w.to
	}
	o.pending = nil
}
