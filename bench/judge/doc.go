// Package judge compares the results of contestants that ran alternately: medians,
// ratios within rounds, and which goals are reached.
//
// It knows neither engines nor servers. A comparison defines its own kind of slot and
// its metrics.
package judge

// Slot is what one contestant did in one cell in one round.
type Slot interface {
	// Turn returns the cell and the contestant. Slots with the same cell and contestant
	// are in the order of their rounds.
	Turn() (cell, contestant string)
}

// Metric is a figure of a slot.
type Metric[S Slot] struct {
	Unit  string
	Scale float64 // of the unit
	Of    func(*S) float64
	Less  bool // less is better
	Worst bool // of several slots the worst counts, and not the median
}
