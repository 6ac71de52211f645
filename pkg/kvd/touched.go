package kvd

import "math/bits"

// touchedKeys is the set of the keys that operations touch, by hash: a hash table with linear
// probing, whose memory serves again. A map would cost as much as a write to the memtable.
type touchedKeys struct {
	slots []uint64 // a hash with writtenBit, or 0
	shift int      // the highest bits of a hash are its place
}

// writtenBit is set in the slot of a key that an operation writes. presentBit is set in every
// slot that is taken.
const (
	writtenBit = 1
	presentBit = 2
)

// reset empties the set and makes room for n keys.
func (t *touchedKeys) reset(n int) {
	size := bits.Len(uint(2 * n)) // at most half of the slots are taken
	t.shift = 64 - size
	if size = 1 << size; size > cap(t.slots) {
		t.slots = make([]uint64, size)
		return
	}
	t.slots = t.slots[:size]
	clear(t.slots)
}

// add adds a key, and reports whether an operation that touches it conflicts with an earlier
// one: if one of the two writes.
func (t *touchedKeys) add(hash uint64, writes bool) (conflict bool) {
	wanted := hash&^writtenBit | presentBit
	if writes {
		wanted |= writtenBit
	}
	for i := hash >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		switch slot := t.slots[i]; {
		case slot == 0:
			t.slots[i] = wanted
			return false
		case (slot^wanted)&^writtenBit == 0:
			return (slot|wanted)&writtenBit != 0
		}
	}
}
