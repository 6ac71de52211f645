package judge

import (
	"math"
	"slices"
)

// Series returns the figures of one contestant in a cell, by round.
func Series[S Slot](slots []S, cell, contestant string, m *Metric[S]) (values []float64) {
	for i := range slots {
		if c, name := slots[i].Turn(); c == cell && name == contestant {
			values = append(values, m.Of(&slots[i]))
		}
	}
	return values
}

// Contestants returns the contestants of a cell, in the order of their first turns.
func Contestants[S Slot](slots []S, cell string) (names []string) {
	for i := range slots {
		if c, name := slots[i].Turn(); c == cell && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Cells returns what was measured, in its order.
func Cells[S Slot](slots []S) (names []string) {
	for i := range slots {
		if c, _ := slots[i].Turn(); !slices.Contains(names, c) {
			names = append(names, c)
		}
	}
	return names
}

// Best returns the contestant with the best median among those that may accepts; empty
// if there is none.
func Best[S Slot](slots []S, cell string, m *Metric[S], may func(contestant string) bool) (best string) {
	var bestMedian float64
	for _, name := range Contestants(slots, cell) {
		if !may(name) {
			continue
		}
		median := NewSpread(Series(slots, cell, name, m)).Median
		if best == "" || (median < bestMedian) == m.Less && median != bestMedian {
			best, bestMedian = name, median
		}
	}
	return best
}

// Ratios compares two contestants round by round. It omits rounds without a ratio, in
// which one of them did nothing; the result is NaN if it omits all.
func Ratios[S Slot](slots []S, cell, contestant, peer string, m *Metric[S]) Spread {
	ours, theirs := Series(slots, cell, contestant, m), Series(slots, cell, peer, m)
	var values []float64
	for i := range min(len(ours), len(theirs)) {
		values = append(values, ours[i]/theirs[i])
	}
	if values = Numbers(values); len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return NewSpread(values)
}
