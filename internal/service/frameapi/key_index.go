package frameapi

// keyIndex numbers the different keys of a frame in the order in which they come. It searches the first
// ones, which are all keys of most frames, one after the other; a frame of reads at versions of their own
// has as many keys as operations. The zero keyIndex has no keys.
type keyIndex struct {
	few   [16]batchKey
	more  map[batchKey]int // numbers of the later ones; nil: there are none
	count int
}

// add returns the number of a key, and whether the key is new.
func (x *keyIndex) add(k batchKey) (number int, fresh bool) {
	for i := range min(x.count, len(x.few)) {
		if x.few[i] == k {
			return i, false
		}
	}
	if number, known := x.more[k]; known {
		return number, false
	}
	if number = x.count; number < len(x.few) {
		x.few[number] = k
	} else {
		if x.more == nil {
			x.more = make(map[batchKey]int)
		}
		x.more[k] = number
	}
	x.count++
	return number, true
}
