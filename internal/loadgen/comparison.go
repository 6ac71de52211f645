package loadgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Comparison measures the cost of something: the rates of trials without it and with
// it. The trials alternate, so that slow changes of the machine affect both equally.
type Comparison struct {
	Without     []float64 `json:"without"` // operations a second, by round
	With        []float64 `json:"with"`
	Ratios      []float64 `json:"ratios"` // with / without, by round
	MedianRatio float64   `json:"medianRatio"`
	Interrupted bool      `json:"interrupted"`
}

// NamedTrial is one of several trials that belong together.
type NamedTrial struct {
	Name string
	*Trial
}

// Compare runs rounds of two trials, and alternates which of them comes first. run
// returns the rate to compare. A round during which ctx ends does not count.
func Compare(ctx context.Context, rounds int, run func(ctx context.Context, with bool) (rate float64, err error)) (*Comparison, error) {
	if rounds < 1 {
		return nil, fmt.Errorf("%d rounds; want at least 1", rounds)
	}
	c := new(Comparison)
	for round := range rounds {
		var rates [2]float64
		for turn := range 2 {
			with := (turn + round) % 2
			rate, err := run(ctx, with == 1)
			if err != nil {
				return nil, err
			}
			rates[with] = rate
		}
		if ctx.Err() != nil {
			c.Interrupted = true
			break
		}
		if rates[0] == 0 {
			return nil, errors.New("nothing was done in a trial; give it more time")
		}
		c.Without = append(c.Without, rates[0])
		c.With = append(c.With, rates[1])
		c.Ratios = append(c.Ratios, rates[1]/rates[0])
	}
	c.MedianRatio = Median(c.Ratios)
	return c, nil
}

// Median returns the middle value, or the mean of the two middle ones; 0 without
// values.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
