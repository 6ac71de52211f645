package workload

import "math/rand/v2"

// knownCapacity is how many keys a worker remembers, as in the article on the
// partitioned tree.
const knownCapacity = 10_000

// knownKey is a key that must be present unless a worker has deleted it since.
type knownKey struct {
	id      uint64
	version version // of this worker's last put; 0 if another worker put it
	since   int64   // when that put began, on the clock of the run; 0: the key may be absent
}

// knownKeys holds the keys that one worker has put and that, as far as it knows, are
// still present.
//
// I1. A key is in at most one slot, and index names that slot. I2. A remembered key has
// the version of the worker's last put of it.
//
// If there are more keys than slots, it normally keeps a uniform sample (Vitter,
// "Random Sampling with a Reservoir", 1985, algorithm R). A slot freed by a delete goes
// to the next put, which slightly favours newer keys. If newest is set, it keeps the
// newest keys.
//
// For one worker only.
type knownKeys struct {
	rng    *rand.Rand
	newest bool

	slots  []knownKey
	index  map[uint64]int32
	seen   uint64 // keys ever added
	oldest int    // if newest: the slot to replace next
}

// newKnownKeys has room for the keys of a run, of which there are so many.
func newKnownKeys(newest bool, keys uint64, rng *rand.Rand) *knownKeys {
	room := min(keys, knownCapacity)
	return &knownKeys{
		rng:    rng,
		newest: newest,
		slots:  make([]knownKey, 0, room),
		index:  make(map[uint64]int32, room),
	}
}

// add remembers a key that was put, unless the sampling rejects it. A key that is
// already remembered gets the new version.
func (k *knownKeys) add(key knownKey) {
	if i, ok := k.index[key.id]; ok {
		k.slots[i] = key
		return
	}
	k.seen++
	if len(k.slots) < knownCapacity {
		k.index[key.id] = int32(len(k.slots))
		k.slots = append(k.slots, key)
		return
	}
	victim := k.oldest
	if k.newest {
		k.oldest = (k.oldest + 1) % knownCapacity
	} else if n := k.rng.Uint64N(k.seen); n < knownCapacity {
		victim = int(n)
	} else {
		return
	}
	delete(k.index, k.slots[victim].id)
	k.slots[victim] = key
	k.index[key.id] = int32(victim)
}

// lookup returns the remembered state of a key.
func (k *knownKeys) lookup(id uint64) (knownKey, bool) {
	i, ok := k.index[id]
	if !ok {
		return knownKey{}, false
	}
	return k.slots[i], true
}

// pick returns a random remembered key; false if there is none.
func (k *knownKeys) pick() (knownKey, bool) {
	if len(k.slots) == 0 {
		return knownKey{}, false
	}
	return k.slots[k.rng.IntN(len(k.slots))], true
}

// remove forgets a key.
func (k *knownKeys) remove(id uint64) {
	i, ok := k.index[id]
	if !ok {
		return
	}
	last := len(k.slots) - 1
	k.slots[i] = k.slots[last]
	k.index[k.slots[i].id] = i
	k.slots = k.slots[:last]
	delete(k.index, id)
}
