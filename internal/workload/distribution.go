package workload

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// Distribution names a way of choosing keys.
type Distribution string

const (
	// Uniform: all keys are equally likely.
	Uniform Distribution = "uniform"
	// Sequential: worker w of T takes the keys w, w+T, w+2T, ... and starts again at
	// the end, so that all workers together walk through the keys in order.
	Sequential Distribution = "sequential"
	// Zipfian: a few neighbouring keys are very likely.
	Zipfian Distribution = "zipfian"
	// ScrambledZipfian: like Zipfian, but the likely keys are spread over the key
	// space.
	ScrambledZipfian Distribution = "scrambled-zipfian"
	// Latest: puts are Sequential, and go on after the keys that are there; reads prefer,
	// by Zipfian, what the worker put last.
	Latest Distribution = "latest"
	// Hotspot: 80 % of the operations go to 20 % of the keys.
	Hotspot Distribution = "hotspot"
)

// Distributions lists all distributions.
var Distributions = []Distribution{Uniform, Sequential, Zipfian, ScrambledZipfian, Latest, Hotspot}

// Skewed reports whether a distribution has a theta.
func (d Distribution) Skewed() bool {
	return d == Zipfian || d == ScrambledZipfian || d == Latest
}

// The hot spot, with the shares that YCSB uses.
const (
	hotKeys  = 0.20
	hotDraws = 0.80
)

// ParseDistribution finds a distribution by its name, in upper or lower case.
func ParseDistribution(name string) (Distribution, error) {
	names := make([]string, len(Distributions))
	for i, d := range Distributions {
		if strings.EqualFold(name, string(d)) {
			return d, nil
		}
		names[i] = string(d)
	}
	return "", fmt.Errorf("unknown distribution %q; choose one of %s", name, strings.Join(names, ", "))
}

// chooser draws key numbers in constant time. For one worker only.
type chooser interface {
	next() uint64
}

// newChoosers returns the choosers of one of several workers: one for its puts, one for
// its reads and deletes. theta is the skew of the Zipfian distributions, 0 for the default.
func newChoosers(d Distribution, theta float64, keys uint64, worker, workers int, rng *rand.Rand) (puts, reads chooser) {
	cursor := func() *sequential {
		return &sequential{keys: keys, first: uint64(worker), stride: uint64(workers)}
	}
	var both chooser
	switch d {
	case Sequential:
		return cursor(), cursor()
	case Latest:
		c := cursor()
		return c, &latest{written: c, ranks: newRanks(c.cycle(), theta, rng)}
	case Zipfian:
		both = newRanks(keys, theta, rng)
	case ScrambledZipfian:
		both = &scrambled{ranks: newRanks(keys, theta, rng), keys: keys}
	case Hotspot:
		both = newHotspot(rng, keys, hotKeys, hotDraws)
	default:
		both = &uniform{rng: rng, keys: keys}
	}
	return both, both
}

type uniform struct {
	rng  *rand.Rand
	keys uint64
}

func (u *uniform) next() uint64 { return u.rng.Uint64N(u.keys) }

type sequential struct {
	keys, first, stride uint64
	drawn               uint64
}

func (s *sequential) next() uint64 {
	id := s.at(s.drawn)
	s.drawn++
	return id
}

// at returns the n-th key of the sequence.
func (s *sequential) at(n uint64) uint64 { return s.first + n%s.cycle()*s.stride }

// cycle returns the number of keys in the sequence before it repeats.
func (s *sequential) cycle() uint64 { return (s.keys - s.first + s.stride - 1) / s.stride }

// skip makes the sequence go on after the keys below n, as if they had been drawn.
func (s *sequential) skip(n uint64) {
	if n > s.first {
		s.drawn = (n - s.first + s.stride - 1) / s.stride
	}
}

// scrambled maps the ranks to the key space by a hash, as YCSB does: two ranks may
// share a key, and some keys have no rank.
type scrambled struct {
	ranks ranks
	keys  uint64
}

func (s *scrambled) next() uint64 {
	id, _ := bits.Mul64(mix64(s.ranks.next()), s.keys)
	return id
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), shifted by
// its increment so that 0 does not map to 0.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// latest walks back from the newest key of a sequence. Its ranks are those of the whole
// cycle; while fewer keys are written, they are folded into those.
type latest struct {
	written *sequential
	ranks   ranks
}

func (l *latest) next() uint64 {
	n := l.written.drawn
	if n == 0 {
		return l.written.first
	}
	back := l.ranks.next() % n
	return l.written.at(n - 1 - back)
}

// hotspot gives a share of the draws to the first keys and the rest to the others,
// uniformly within each group.
type hotspot struct {
	rng       *rand.Rand
	keys, hot uint64
	rate      float64 // share of the draws that go to the hot keys
}

// newHotspot makes a share of the keys hot, but at least one key.
func newHotspot(rng *rand.Rand, keys uint64, fraction, rate float64) *hotspot {
	hot := uint64(float64(keys) * fraction)
	return &hotspot{rng: rng, keys: keys, hot: min(max(hot, 1), keys), rate: rate}
}

func (h *hotspot) next() uint64 {
	if h.hot == h.keys || h.rng.Float64() < h.rate {
		return h.rng.Uint64N(h.hot)
	}
	return h.hot + h.rng.Uint64N(h.keys-h.hot)
}
