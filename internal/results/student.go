package results

import "math"

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(len(v), 1))
}

// variance returns the variance of the mean of v; 0 of a single value.
func variance(v []float64) float64 {
	if len(v) < 2 {
		return 0
	}
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return sum / float64(len(v)-1) / float64(len(v))
}

// deviation returns the standard deviation of v; 0 of a single value.
func deviation(v []float64) float64 { return math.Sqrt(variance(v) * float64(len(v))) }

// welch is Welch's test of the difference of two means, with the degrees of freedom of the
// side that has fewer: see Compare.
type welch struct {
	difference float64 // of the mean of b and that of a
	deviation  float64 // of difference
	freedom    float64
}

func newWelch(a, b []float64) welch {
	return welch{
		difference: mean(b) - mean(a),
		deviation:  math.Sqrt(variance(a) + variance(b)),
		freedom:    float64(max(min(len(a), len(b))-1, 1)),
	}
}

// p returns the probability of at least this difference, to either side, between equal means.
func (w welch) p() float64 {
	if w.difference == 0 {
		return 1
	}
	t := w.difference / w.deviation // infinite if the values do not spread
	return incompleteBeta(w.freedom/(w.freedom+t*t), w.freedom/2, 0.5)
}

// half returns half the width of the interval of the difference at 1 - alpha.
func (w welch) half(alpha float64) float64 {
	if w.deviation == 0 {
		return 0
	}
	return studentQuantile(1-alpha/2, w.freedom) * w.deviation
}

// studentQuantile returns the quantile p, above 0.5, of Student's distribution with some
// degrees of freedom, by bisection of its distribution function.
func studentQuantile(p, freedom float64) float64 {
	low, high := 0.0, 1.0
	for studentBelow(high, freedom) < p && high < 1e9 {
		high *= 2
	}
	for high-low > 1e-12*high {
		if mid := (low + high) / 2; studentBelow(mid, freedom) < p {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// studentBelow returns the probability that a value of Student's distribution is below t,
// which is positive.
func studentBelow(t, freedom float64) float64 {
	return 1 - incompleteBeta(freedom/(freedom+t*t), freedom/2, 0.5)/2
}

// incompleteBeta returns the regularized incomplete beta function, by its continued
// fraction (Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.5.8), which
// Lentz's algorithm evaluates.
func incompleteBeta(x, a, b float64) float64 {
	if x > (a+1)/(a+b+2) {
		return 1 - incompleteBeta(1-x, b, a)
	}
	if x <= 0 {
		return 0
	}
	lab, _ := math.Lgamma(a + b)
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	front := math.Exp(lab-la-lb+a*math.Log(x)+b*math.Log1p(-x)) / a
	const tiny = 1e-300
	c, d, f := 1.0, 0.0, 1.0
	for i := range 500 {
		m := float64(i / 2)
		var term float64
		switch {
		case i == 0:
			term = 1
		case i%2 == 0:
			term = m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		default:
			term = -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		}
		if d = 1 + term*d; math.Abs(d) < tiny {
			d = tiny
		}
		d = 1 / d
		if c = 1 + term/c; math.Abs(c) < tiny {
			c = tiny
		}
		f *= c * d
		if math.Abs(1-c*d) < 1e-12 {
			break
		}
	}
	return front * (f - 1)
}
