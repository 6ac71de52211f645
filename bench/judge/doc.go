// Package judge compares what contestants did in turns: medians, ratios that are
// taken within a round, and which goals they reach.
//
// It knows neither engines nor servers. A comparison brings its own kind of slot
// and the figures that are read from it.
package judge

// Slot is what one contestant did in one cell in one round.
type Slot interface {
	// Turn says in which cell, and who. Slots of one cell and contestant are in the
	// order of their rounds.
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
