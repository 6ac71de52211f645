package workload

import (
	"math"
	"math/rand/v2"
)

// DefaultTheta is the skew of the Zipfian distributions of YCSB.
const DefaultTheta = 0.99

// MaxTheta bounds the skew: at 10, one draw in a thousand is not the first rank.
const MaxTheta = 10

// orDefault returns a skew, which is 0 if it is not set.
func orDefault(theta float64) float64 {
	if theta == 0 {
		return DefaultTheta
	}
	return theta
}

// ranks draws ranks 0, 1, 2, ... n-1, rank r in proportion to 1/(r+1)^theta, in constant
// time. For one worker only.
type ranks interface {
	chooser
	// grow extends the ranks to 0 ... n-1; n must not be less than before.
	grow(n uint64)
}

// newRanks returns the generator of YCSB for the skews that it supports, so that results
// are comparable, and another for larger ones. theta is 0 for the default.
func newRanks(n uint64, theta float64, rng *rand.Rand) ranks {
	if theta = orDefault(theta); theta < 1 {
		return newZipf(n, theta, rng)
	}
	return newSteepZipf(n, theta, rng)
}

// zipf is ranks for 0 < theta < 1, approximately.
//
// Source: Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly Generating
// Billion-Record Synthetic Databases", SIGMOD 1994, section 3.2; the generator of YCSB
// is the same, so skews are comparable. The first two ranks are exact; the others
// result from inverting an integral instead of the sum.
type zipf struct {
	rng              *rand.Rand
	n                float64
	theta            float64
	alpha, eta, zeta float64
	zeta2            float64
}

func newZipf(n uint64, theta float64, rng *rand.Rand) *zipf {
	z := &zipf{rng: rng, theta: theta, alpha: 1 / (1 - theta), zeta2: zeta(2, theta)}
	z.resize(n, zeta(n, theta))
	return z
}

func (z *zipf) resize(n uint64, zeta float64) {
	z.n, z.zeta = float64(n), zeta
	if n > 2 {
		z.eta = (1 - math.Pow(2/z.n, 1-z.theta)) / (1 - z.zeta2/z.zeta)
	}
}

// addedTerms is the largest increase for which adding terms is cheaper than a new sum.
const addedTerms = 10_000

// grow adds the new terms to the sum, so a caller may grow before each draw.
func (z *zipf) grow(n uint64) {
	before := uint64(z.n)
	switch {
	case n == before:
	case n-before > addedTerms:
		z.resize(n, zeta(n, z.theta))
	default:
		sum := z.zeta
		for i := before + 1; i <= n; i++ {
			sum += math.Pow(float64(i), -z.theta)
		}
		z.resize(n, sum)
	}
}

func (z *zipf) next() uint64 {
	u := z.rng.Float64()
	switch uz := u * z.zeta; {
	case uz < 1 || z.n == 1:
		return 0
	case uz < z.zeta2 || z.n == 2:
		return 1
	}
	rank := z.n * math.Pow(z.eta*u-z.eta+1, z.alpha)
	return uint64(min(rank, z.n-1))
}

// zeta returns the sum of 1/i^theta for i = 1 ... n, for theta below 1.
//
// It adds only the first ten thousand terms; the Euler-Maclaurin formula gives the rest
// to twelve digits. Adding a billion terms would take half a minute.
func zeta(n uint64, theta float64) float64 {
	const exact = 10_000
	var sum float64
	for i := uint64(1); i <= min(n, exact); i++ {
		sum += math.Pow(float64(i), -theta)
	}
	if n <= exact {
		return sum
	}
	a, b := float64(exact), float64(n)
	integral := (math.Pow(b, 1-theta) - math.Pow(a, 1-theta)) / (1 - theta)
	ends := (math.Pow(b, -theta) - math.Pow(a, -theta)) / 2
	slopes := theta * (math.Pow(a, -theta-1) - math.Pow(b, -theta-1)) / 12
	return sum + integral + ends + slopes
}
