package workload

import (
	"math"
	"math/rand/v2"
)

// zipfTheta is the skew of YCSB. rand.Zipf only supports skews above 1.
const zipfTheta = 0.99

// zipf draws ranks 0, 1, 2, ... n-1, rank r approximately in proportion to
// 1/(r+1)^0.99, in constant time.
//
// Source: Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly Generating
// Billion-Record Synthetic Databases", SIGMOD 1994, section 3.2; the generator of YCSB
// is the same, so skews are comparable. The first two ranks are exact; the others
// result from inverting an integral instead of the sum.
type zipf struct {
	rng              *rand.Rand
	n                float64
	alpha, eta, zeta float64
}

func newZipf(n uint64, rng *rand.Rand) *zipf {
	z := &zipf{rng: rng, alpha: 1 / (1 - zipfTheta)}
	z.resize(n, zeta(n))
	return z
}

func (z *zipf) resize(n uint64, zeta float64) {
	z.n, z.zeta = float64(n), zeta
	if n > 2 {
		z.eta = (1 - math.Pow(2/z.n, 1-zipfTheta)) / (1 - zeta2/z.zeta)
	}
}

// addedTerms is the largest increase for which adding terms is cheaper than a new sum.
const addedTerms = 10_000

// grow extends the ranks to 0 ... n-1; n must not be less than before. The sum grows by
// the new terms only, so a caller may grow before each draw.
func (z *zipf) grow(n uint64) {
	before := uint64(z.n)
	switch {
	case n == before:
	case n-before > addedTerms:
		z.resize(n, zeta(n))
	default:
		sum := z.zeta
		for i := before + 1; i <= n; i++ {
			sum += math.Pow(float64(i), -zipfTheta)
		}
		z.resize(n, sum)
	}
}

func (z *zipf) next() uint64 {
	u := z.rng.Float64()
	switch uz := u * z.zeta; {
	case uz < 1 || z.n == 1:
		return 0
	case uz < zeta2 || z.n == 2:
		return 1
	}
	rank := z.n * math.Pow(z.eta*u-z.eta+1, z.alpha)
	return uint64(min(rank, z.n-1))
}

var zeta2 = zeta(2)

// zeta returns the sum of 1/i^theta for i = 1 ... n.
//
// It adds only the first ten thousand terms; the Euler-Maclaurin formula gives the rest
// to twelve digits. Adding a billion terms would take half a minute.
func zeta(n uint64) float64 {
	const exact = 10_000
	var sum float64
	for i := uint64(1); i <= min(n, exact); i++ {
		sum += math.Pow(float64(i), -zipfTheta)
	}
	if n <= exact {
		return sum
	}
	a, b := float64(exact), float64(n)
	integral := (math.Pow(b, 1-zipfTheta) - math.Pow(a, 1-zipfTheta)) / (1 - zipfTheta)
	ends := (math.Pow(b, -zipfTheta) - math.Pow(a, -zipfTheta)) / 2
	slopes := zipfTheta * (math.Pow(a, -zipfTheta-1) - math.Pow(b, -zipfTheta-1)) / 12
	return sum + integral + ends + slopes
}
