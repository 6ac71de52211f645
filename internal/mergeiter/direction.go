package mergeiter

// direction of a walk, set by its positioning. The zero value is forward.
type direction bool

const (
	forward  direction = false
	backward direction = true
)

// must panics unless the walk has the direction of the move.
func (d direction) must(move direction) {
	if d != move {
		panic("kvd: an iterator was moved against the direction of its walk; position it anew to turn round")
	}
}

// flip returns what a word is combined with (xor), so that the first word of the walk is
// the smallest.
func (d direction) flip() uint64 {
	if d == backward {
		return ^uint64(0)
	}
	return 0
}
