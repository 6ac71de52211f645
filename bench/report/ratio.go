package report

import (
	"fmt"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/internal/results"
)

// MedianRate returns the median rate of the runs of a cell.
func MedianRate(c *results.Cell) float64 {
	_, rate, _ := c.Rates()
	return rate
}

// Ratio compares the rates of two cells round by round: the runs of a round are seconds
// apart. It is false if no round has a ratio.
func Ratio(c, of *results.Cell) (s judge.Spread, ok bool) {
	var values []float64
	for i := range min(len(c.Runs), len(of.Runs)) {
		values = append(values, c.Runs[i].OpsPerSecond/of.Runs[i].OpsPerSecond)
	}
	if values = judge.Numbers(values); len(values) == 0 {
		return judge.Spread{}, false
	}
	return judge.NewSpread(values), true
}

// RatioText shows the ratio of two cells with its range over the rounds; a dash if there
// is none.
func RatioText(c, of *results.Cell) string {
	if of == nil {
		return "-"
	}
	s, ok := Ratio(c, of)
	switch {
	case !ok:
		return "-"
	case s.Least == s.Most:
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", s.Median, s.Least, s.Most)
}
