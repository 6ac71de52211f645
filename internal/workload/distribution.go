package workload

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
)

// Distribution names how keys are chosen.
type Distribution string

const (
	// Uniform: every key is as likely as any other.
	Uniform Distribution = "uniform"
	// Sequential: worker w of T takes the keys w, w+T, w+2T, ... and begins again
	// at the end, so that all workers together go through the keys in order.
	Sequential Distribution = "sequential"
	// Zipfian: a few keys are very likely, and they are neighbours.
	Zipfian Distribution = "zipfian"
	// ScrambledZipfian: as Zipfian, but the likely keys lie far apart.
	ScrambledZipfian Distribution = "scrambled-zipfian"
	// Latest: puts as Sequential; reads prefer, by Zipfian, what the worker put
	// last.
	Latest Distribution = "latest"
	// Hotspot: 80 % of the operations go to 20 % of the keys.
	Hotspot Distribution = "hotspot"
)

// Distributions are all there are.
var Distributions = []Distribution{Uniform, Sequential, Zipfian, ScrambledZipfian, Latest, Hotspot}

// The hot spot: the shares that YCSB uses.
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

// chooser draws key numbers in constant time. It belongs to one worker.
type chooser interface {
	next() uint64
}

// newChoosers returns what one of several workers draws from: the keys that it
// puts, and those that it reads and deletes.
func newChoosers(d Distribution, keys uint64, worker, workers int, rng *rand.Rand) (puts, reads chooser) {
	cursor := func() *sequential {
		return &sequential{keys: keys, first: uint64(worker), stride: uint64(workers)}
	}
	var both chooser
	switch d {
	case Sequential:
		return cursor(), cursor()
	case Latest:
		c := cursor()
		return c, &latest{written: c, zipf: newZipf(c.cycle(), rng)}
	case Zipfian:
		both = newZipf(keys, rng)
	case ScrambledZipfian:
		both = &scrambled{zipf: newZipf(keys, rng), keys: keys}
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

// cycle returns how many keys the sequence has before it begins again.
func (s *sequential) cycle() uint64 { return (s.keys - s.first + s.stride - 1) / s.stride }

// scrambled spreads the ranks over the key space by a hash, as YCSB does: two
// ranks may share a key, and some keys have no rank.
type scrambled struct {
	zipf *zipf
	keys uint64
}

func (s *scrambled) next() uint64 {
	id, _ := bits.Mul64(mix64(s.zipf.next()), s.keys)
	return id
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014),
// moved by its increment so that 0 does not stay 0.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// latest walks back from the newest key of a sequence. The ranks are those of
// the whole cycle; while less than that is written they are folded into it.
type latest struct {
	written *sequential
	zipf    *zipf
}

func (l *latest) next() uint64 {
	n := l.written.drawn
	if n == 0 {
		return l.written.first
	}
	back := l.zipf.next() % n
	return l.written.at(n - 1 - back)
}

// hotspot sends a share of the draws to the first keys and the rest to the
// others, within each evenly.
type hotspot struct {
	rng       *rand.Rand
	keys, hot uint64
	rate      float64 // of the draws that go to the hot keys
}

// newHotspot makes a share of the keys hot, at least one of them.
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
