package judge

import (
	"math"
	"slices"
)

// Spread is the median of some numbers and their range.
type Spread struct {
	Median, Least, Most float64
}

// NewSpread needs at least one value.
func NewSpread(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
}

// Numbers omits NaNs: figures that a slot did not have.
func Numbers(values []float64) []float64 {
	return slices.DeleteFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}
