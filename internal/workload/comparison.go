package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Comparison tells what something costs: the rates of a trial without it and
// with it, which took turns, so that what changes slowly on the machine changes
// both alike.
type Comparison struct {
	Without     []float64 `json:"without"` // operations a second, by round
	With        []float64 `json:"with"`
	Ratios      []float64 `json:"ratios"` // with / without, by round
	MedianRatio float64   `json:"medianRatio"`
	Interrupted bool      `json:"interrupted"`
}

// NamedTrial is one trial of several that belong together.
type NamedTrial struct {
	Name string
	*Trial
}

// compare does rounds of two trials: without first in one round, with first in
// the next. What counts of a trial is the rate that run returns. A round that ctx
// ends does not count.
func compare(ctx context.Context, rounds int, run func(ctx context.Context, with bool) (rate float64, err error)) (*Comparison, error) {
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
	c.MedianRatio = median(c.Ratios)
	return c, nil
}

// median returns the middle value, or the mean of the two; 0 if there is none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
