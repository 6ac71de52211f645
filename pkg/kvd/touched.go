package kvd

import "math/bits"

// touchedKeys is the set of the keys that operations touch, by hash: a hash table with linear
// probing, whose memory serves again. A map would cost as much as a write to the memtable.
type touchedKeys struct {
	slots []uint64 // a hash with writtenBit, or 0; at most half of them are taken
	taken int
	shift int      // the highest bits of a hash are its place
	spare []uint64 // memory for the next table
}

// writtenBit is set in the slot of a key that an operation writes. presentBit is set in every
// slot that is taken.
const (
	writtenBit = 1
	presentBit = 2
)

// firstSlots is the size of the table of a run that has just begun. Each run clears so many, and
// may be one operation, which then takes a call of the server. Guessed.
const firstSlots = 64

// reset empties the set.
func (t *touchedKeys) reset() {
	t.renew(t.slots, firstSlots)
	t.taken = 0
}

// renew makes the table one of n empty slots, a power of two, in memory if that is enough.
func (t *touchedKeys) renew(memory []uint64, n int) {
	t.shift = 64 - bits.TrailingZeros(uint(n))
	if n > cap(memory) {
		t.slots = make([]uint64, n)
		return
	}
	t.slots = memory[:n]
	clear(t.slots)
}

// grow makes the table four times as large: to double it would copy three times as many slots.
func (t *touchedKeys) grow() {
	old := t.slots
	t.renew(t.spare, 4*len(old))
	t.spare = old
	for _, slot := range old {
		if slot != 0 {
			t.slots[t.find(slot)] = slot
		}
	}
}

// find returns the place of a key: its slot, or the empty one that it may take.
func (t *touchedKeys) find(hash uint64) uint64 {
	for i := hash >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if slot := t.slots[i]; slot == 0 || (slot^hash)&^(writtenBit|presentBit) == 0 {
			return i
		}
	}
}

// add adds a key, and reports whether an operation that touches it conflicts with an earlier
// one: if one of the two writes.
func (t *touchedKeys) add(hash uint64, writes bool) (conflict bool) {
	wanted := hash&^writtenBit | presentBit
	if writes {
		wanted |= writtenBit
	}
	if 2*t.taken == len(t.slots) {
		t.grow()
	}
	slot := &t.slots[t.find(hash)]
	if *slot != 0 {
		return (*slot|wanted)&writtenBit != 0
	}
	*slot = wanted
	t.taken++
	return false
}
