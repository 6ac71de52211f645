package results

import (
	"fmt"
	"math"
	"slices"
)

// Verdict says how B compares with A.
type Verdict int

const (
	Same Verdict = iota // the spread of the runs may explain the difference, or it is too small to count
	Better
	Worse
	Unknown // a side has too few runs
)

func (v Verdict) String() string {
	return [...]string{"no difference", "better", "worse", "too few runs"}[v]
}

// FalseAlarms bounds the share of comparisons of equal programs in which any figure is called
// better or worse: of the rates, and of the other figures.
const (
	FalseAlarms      = rateFalseAlarms + otherFalseAlarms
	rateFalseAlarms  = 0.04
	otherFalseAlarms = 0.01
)

// FewestRuns is how many runs each side needs for a verdict.
const FewestRuns = 3

// The least difference that counts. With less than LeastOfLeast, the width of a histogram's
// bucket might count.
const (
	DefaultLeast = 0.03
	LeastOfLeast = 0.01
)

// row is a difference whose verdict is not known yet.
type row struct {
	Difference
	a, b  samples
	less  bool // less is better
	welch welch
	level float64 // of Holm's procedure
}

// testable reports whether both sides have enough values for Welch's test.
func (r *row) testable() bool { return min(len(r.a.logs), len(r.b.logs)) >= FewestRuns }

// decide gives all rows of a comparison their verdicts.
func decide(rows []*row, least float64) {
	var rates, others []*row
	for _, r := range rows {
		if r.Main {
			rates = append(rates, r)
		} else {
			others = append(others, r)
		}
	}
	holm(rates, rateFalseAlarms)
	holm(others, otherFalseAlarms)
	for _, r := range rows {
		r.decide(least)
	}
}

// holm sets the level of rows: that of the step at which Holm's procedure ends. The procedure
// finds a difference in the rows whose p-values are not above it.
func holm(rows []*row, alpha float64) {
	var values []float64
	for _, r := range rows {
		if r.testable() {
			values = append(values, r.welch.p())
		}
	}
	slices.Sort(values)
	level := alpha
	for i, p := range values {
		if level = alpha / float64(len(values)-i); p > level {
			break
		}
	}
	for _, r := range rows {
		r.level = level
	}
}

// spread returns the larger standard deviation of the two sides, of the logarithms.
func (r *row) spread() float64 { return max(deviation(r.a.logs), deviation(r.b.logs)) }

func (r *row) decide(least float64) {
	before, after := r.a.idleShare(), r.b.idleShare()
	difference := r.welch.difference
	switch {
	case min(r.a.count(), r.b.count()) < FewestRuns:
		r.Verdict = Unknown
	case after > before:
		r.Verdict = Worse
	case after < before:
		r.Verdict = Better
	case after == 1: // and so before
	case !r.testable():
		r.Verdict = Unknown
	case r.welch.p() > r.level || math.Abs(difference) <= max(math.Log1p(least), r.spread()):
	case (difference < 0) == r.less:
		r.Verdict = Better
	default:
		r.Verdict = Worse
	}
}

// finish returns the difference with its interval, after decide.
func (r *row) finish() Difference {
	half := 0.0
	if r.testable() {
		half = r.welch.half(r.level)
	}
	middle := r.welch.difference
	r.Ratio, r.Low, r.High, r.Spread = math.Exp(middle), math.Exp(middle-half), math.Exp(middle+half), math.Expm1(r.spread())
	r.Values = min(len(r.a.logs), len(r.b.logs))
	if r.a.idle+r.b.idle > 0 {
		r.describeIdle()
	}
	return r.Difference
}

// describeIdle says in how many runs a store did nothing. A mean over no run is 0.
func (r *row) describeIdle() {
	a, b := &r.a, &r.b
	r.Idle = fmt.Sprintf("no operation in %d of %d before, in %d of %d after", a.idle, a.count(), b.idle, b.count())
	switch {
	case len(a.logs) == 0 && len(b.logs) == 0:
		r.Ratio, r.Low, r.High = 1, 1, 1
	case len(a.logs) == 0:
		r.Ratio, r.Low, r.High = math.Inf(1), math.Inf(1), math.Inf(1)
	case len(b.logs) == 0:
		r.Ratio, r.Low, r.High = 0, 0, 0
	}
}
