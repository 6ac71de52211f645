package main

import (
	"math"
	"math/rand/v2"
	"sort"
)

// step is a read of one key, or a scan of everything.
type step struct {
	key    int32
	scan   bool
	byGets bool // the scan reads a key of each block, so that nothing marks it as one
}

// stream is a kind of load.
type stream struct {
	name  string
	steps func(keys, reads, every int, rng *rand.Rand) []step
}

var streams = []stream{
	{"zipf 0.7", zipf(0.7, nil)},
	{"zipf 0.99", zipf(0.99, nil)},
	{"zipf 1.2", zipf(1.2, nil)},
	{"uniform", zipf(0, nil)},
	{"zipf 0.99, neighbours", zipf(0.99, func(l *load) { l.neighbours = true })},
	{"zipf 0.99, scans", zipf(0.99, func(l *load) { l.pause = step{scan: true} })},
	{"zipf 0.99, gets of all", zipf(0.99, func(l *load) { l.pause = step{scan: true, byGets: true} })},
	{"zipf 0.99, shifting", zipf(0.99, func(l *load) { l.shift = true })},
	{"zipf 1.2, shifting", zipf(1.2, func(l *load) { l.shift = true })},
}

// load says what a stream is beside its skew.
type load struct {
	neighbours bool // the likely keys lie together; else they lie in different blocks
	pause      step // taken every so many reads, unless it is zero
	shift      bool // every so many reads all keys change places with others
}

// zipf draws the key of rank r with a probability proportional to 1/(r+1)^skew.
func zipf(skew float64, set func(*load)) func(keys, reads, every int, rng *rand.Rand) []step {
	var l load
	if set != nil {
		set(&l)
	}
	return func(keys, reads, every int, rng *rand.Rand) []step {
		upTo := make([]float64, keys) // the weight of the first ranks together
		sum := 0.0
		for r := range upTo {
			sum += math.Pow(float64(r+1), -skew)
			upTo[r] = sum
		}
		place := rng.Perm(keys)
		steps := make([]step, 0, reads+reads/every)
		for i := range reads {
			if i%every == 0 && i > 0 {
				if l.pause.scan {
					steps = append(steps, l.pause)
				}
				if l.shift {
					place = rng.Perm(keys)
				}
			}
			key := sort.SearchFloat64s(upTo, rng.Float64()*sum)
			if !l.neighbours {
				key = place[key]
			}
			steps = append(steps, step{key: int32(key)})
		}
		return steps
	}
}
