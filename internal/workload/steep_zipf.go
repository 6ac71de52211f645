package workload

import (
	"math"
	"math/rand/v2"
)

// steepZipf is ranks for any skew above 0. It needs no sum over the ranks, and its shares
// are exact.
//
// Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
// discrete distributions", ACM TOMACS 6(3), 1996. A draw inverts the integral of
// 1/x^theta over a stretch around each rank, and is repeated if it falls outside of the
// part of the stretch that has the rank's share.
type steepZipf struct {
	rng          *rand.Rand
	n, theta     float64
	first, last  float64 // ends of the integral
	alwaysWithin float64 // draws this close below their rank need no test
}

func newSteepZipf(n uint64, theta float64, rng *rand.Rand) *steepZipf {
	z := &steepZipf{rng: rng, theta: theta}
	z.first = z.integral(1.5) - 1
	z.alwaysWithin = 2 - z.inverse(z.integral(2.5)-z.share(2))
	z.grow(n)
	return z
}

func (z *steepZipf) grow(n uint64) {
	z.n = float64(n)
	z.last = z.integral(z.n + 0.5)
}

func (z *steepZipf) next() uint64 {
	for {
		u := z.last + z.rng.Float64()*(z.first-z.last)
		x := z.inverse(u)
		rank := min(max(math.Floor(x+0.5), 1), z.n)
		if rank-x <= z.alwaysWithin || u >= z.integral(rank+0.5)-z.share(rank) {
			return uint64(rank) - 1
		}
	}
}

func (z *steepZipf) share(x float64) float64 { return math.Exp(-z.theta * math.Log(x)) }

// integral returns that of share from 1 to x: (x^(1-theta) - 1) / (1-theta), and log x for
// a theta of 1.
func (z *steepZipf) integral(x float64) float64 {
	log := math.Log(x)
	if t := (1 - z.theta) * log; math.Abs(t) > 1e-8 {
		return math.Expm1(t) / (1 - z.theta)
	}
	return log
}

// inverse is the inverse function of integral.
func (z *steepZipf) inverse(y float64) float64 {
	t := max(y*(1-z.theta), -1)
	if math.Abs(t) > 1e-8 {
		return math.Exp(math.Log1p(t) / (1 - z.theta))
	}
	return math.Exp(y)
}
