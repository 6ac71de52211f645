package results

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Verdict says how B compares with A.
type Verdict int

const (
	Same Verdict = iota // the interval contains no difference
	Better
	Worse
)

func (v Verdict) String() string { return [...]string{"no difference", "better", "worse"}[v] }

// Difference compares one figure of one cell.
type Difference struct {
	Cell   string
	Metric string
	A, B   float64 // geometric means
	// Ratio is B / A, and Low and High are its confidence interval.
	Ratio, Low, High float64
	Verdict          Verdict
	// Main: the figure that decides, the rate of the cell. The intervals of all main
	// figures together have the confidence; other figures have it one by one, so that one
	// in twenty of them is outside of its interval by chance.
	Main bool
}

// Confidence of the intervals.
const Confidence = 0.95

// The comparison of single runs. Guessed: what one run differs from the next on a machine
// that others use too; the seconds within a run do not show it.
const (
	fewRuns     = 3 // with fewer, seconds stand in for runs
	runToRun    = 0.07
	blocksOfRun = 5
)

// Compare compares the cells that two results have in common, by their parameters.
//
// The figures of runs are compared by the logarithm, by Welch's t interval (Welch, "The
// generalization of Student's problem when several different population variances are
// involved", 1947), with Bonferroni's correction over the main figures. With less than
// three runs on a side, five stretches of each run stand in for runs, and an interval is
// never narrower than 7 % to both sides.
func Compare(a, b *Result) ([]Difference, error) {
	type pair struct{ a, b *Cell }
	var pairs []pair
	for _, ca := range a.Cells {
		i := slices.IndexFunc(b.Cells, func(cb *Cell) bool { return slices.Equal(ca.Params, cb.Params) })
		if i >= 0 && len(ca.Runs) > 0 && len(b.Cells[i].Runs) > 0 {
			pairs = append(pairs, pair{ca, b.Cells[i]})
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("results: the two have no combination of parameters in common")
	}
	var all []Difference
	for _, p := range pairs {
		for _, m := range metrics(p.a, p.b) {
			d := m.compare(p.a, p.b, len(pairs))
			d.Cell = p.a.Name()
			all = append(all, d)
		}
	}
	return all, nil
}

// metric is a figure of runs.
type metric struct {
	name   string
	less   bool // less is better
	main   bool
	ofRun  func(*Run) float64
	second func(*Second) float64 // nil: not known of a second
}

// metrics returns the figures that both cells have.
func metrics(a, b *Cell) []metric {
	list := []metric{
		{name: "operations/s", main: true, ofRun: func(r *Run) float64 { return r.OpsPerSecond }, second: func(s *Second) float64 { return s.OpsPerSecond }},
		{name: "CPU an operation", less: true, ofRun: func(r *Run) float64 { return r.CPUMicrosPerOp }},
	}
	for _, o := range a.Runs[0].Trial.Operations {
		if b.Runs[0].Trial.Operation(o.Name).Count == 0 {
			continue
		}
		for _, q := range []struct {
			name string
			of   func(loadgen.Latency) int64
		}{
			{"p50", func(l loadgen.Latency) int64 { return l.P50 }},
			{"p99", func(l loadgen.Latency) int64 { return l.P99 }},
		} {
			list = append(list, metric{
				name: o.Name + " " + q.name, less: true,
				ofRun: func(r *Run) float64 { return float64(q.of(r.Trial.Operation(o.Name).Nanos)) },
				second: func(s *Second) float64 {
					i := slices.IndexFunc(s.Operations, func(of loadgen.Operation) bool { return of.Name == o.Name })
					if i < 0 {
						return 0
					}
					return float64(q.of(s.Operations[i].Nanos))
				},
			})
		}
	}
	return list
}

func (m *metric) compare(a, b *Cell, mains int) Difference {
	single := min(len(a.Runs), len(b.Runs)) < fewRuns
	as, bs := m.samples(a, single), m.samples(b, single)
	alpha := 1 - Confidence
	if m.main {
		alpha /= float64(mains)
	}
	middle, half := welch(as, bs, alpha)
	if single {
		half = max(half, math.Log1p(runToRun))
	}
	d := Difference{
		Metric: m.name, Main: m.main, A: math.Exp(mean(as)), B: math.Exp(mean(bs)),
		Ratio: math.Exp(middle), Low: math.Exp(middle - half), High: math.Exp(middle + half),
	}
	switch {
	case d.Low <= 1 && d.High >= 1:
	case (d.Ratio > 1) != m.less:
		d.Verdict = Better
	default:
		d.Verdict = Worse
	}
	return d
}

// samples returns logarithms of the figure: of runs, or of stretches of runs.
func (m *metric) samples(c *Cell, stretches bool) []float64 {
	var list []float64
	add := func(v float64) {
		if v > 0 {
			list = append(list, math.Log(v))
		}
	}
	for _, r := range c.Runs {
		if !stretches || m.second == nil || len(r.Series) < 2*blocksOfRun {
			add(m.ofRun(r))
			continue
		}
		for n := range blocksOfRun {
			from, to := n*len(r.Series)/blocksOfRun, (n+1)*len(r.Series)/blocksOfRun
			sum := 0.0
			for i := from; i < to; i++ {
				sum += m.second(&r.Series[i])
			}
			add(sum / float64(to-from))
		}
	}
	return list
}

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

// welch returns the difference of the means of b and a, and half the width of its
// confidence interval at 1 - alpha.
func welch(a, b []float64, alpha float64) (difference, half float64) {
	va, vb := variance(a), variance(b)
	difference = mean(b) - mean(a)
	if va+vb == 0 {
		return difference, 0
	}
	freedom := (va + vb) * (va + vb) / (va*va/float64(max(len(a)-1, 1)) + vb*vb/float64(max(len(b)-1, 1)))
	return difference, studentQuantile(1-alpha/2, freedom) * math.Sqrt(va+vb)
}

// studentQuantile returns the quantile p, above 0.5, of Student's distribution with some
// degrees of freedom, by bisection of its distribution function.
func studentQuantile(p, freedom float64) float64 {
	low, high := 0.0, 1.0
	for studentBelow(high, freedom) < p && high < 1e9 {
		high *= 2
	}
	for range 100 {
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
