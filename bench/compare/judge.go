package main

import (
	"math"
	"slices"

	"github.com/kvd-db/kvd/internal/workload"
)

// metric is a figure of a slot.
type metric struct {
	unit  string
	scale float64 // of the unit
	of    func(*slot) float64
	less  bool // less is better
	worst bool // of several slots the worst counts, and not the median
}

var (
	opsPerSecond = &metric{unit: "k ops/s", scale: 1e3, of: func(s *slot) float64 { return s.Run.Summary.OpsPerSecond }}
	cpuPerOp     = &metric{unit: "us", scale: 1, of: func(s *slot) float64 { return s.Run.Summary.CPUMicrosPerOp }, less: true}
	getP50       = &metric{unit: "us", scale: 1e3, of: func(s *slot) float64 { return float64(s.Run.Summary.Get.Nanos.P50) }, less: true}
	getP99       = &metric{unit: "us", scale: 1e3, of: func(s *slot) float64 { return float64(s.Run.Summary.Get.Nanos.P99) }, less: true}
	stall        = &metric{unit: "ms", scale: 1e6, of: func(s *slot) float64 { return float64(s.Run.Summary.LongestStallNanos) }, less: true, worst: true}
	amplified    = &metric{scale: 1, of: func(s *slot) float64 { return ratio(s.Run.Written.Calls, s.Run.UserBytes) }, less: true}
	resident     = &metric{scale: 1, of: func(s *slot) float64 { return ratio(s.Run.Memory.PeakBytes, s.Budget) }, less: true, worst: true}
	ofDisk       = &metric{scale: 1, of: func(s *slot) float64 { return float64(s.Run.UserBytes) / s.Run.Summary.Seconds / s.DiskRate }}
	steadiness   = &metric{scale: 1, of: func(s *slot) float64 { return slowestOfMedian(s.Run.Seconds) }}
	merging      = &metric{scale: 1, of: func(s *slot) float64 { return mergingOfQuiet(s.Run.Seconds) }}
)

func ratio(part, whole int64) float64 { return float64(part) / float64(whole) }

// slowestOfMedian is the rate of the slowest second over the median rate; not a
// number if there are no seconds.
func slowestOfMedian(seconds []second) float64 {
	rates := ratesOf(seconds, func(second) bool { return true })
	if len(rates) == 0 {
		return math.NaN()
	}
	return slices.Min(rates) / newSpread(rates).median
}

// From what share of a second on it counts as one of merging, and up to what share
// as a quiet one. Guessed: compactions are short, and a smaller store has no whole
// second of them.
const (
	mostlyMerging = 0.25
	mostlyQuiet   = 0.05
)

// mergingOfQuiet is the median rate of seconds in which the store merged over that
// of seconds in which it did not; not a number if there are not both.
func mergingOfQuiet(seconds []second) float64 {
	merging := ratesOf(seconds, func(s second) bool { return s.Merging != nil && *s.Merging >= mostlyMerging })
	quiet := ratesOf(seconds, func(s second) bool { return s.Merging != nil && *s.Merging <= mostlyQuiet })
	if len(merging) == 0 || len(quiet) == 0 {
		return math.NaN()
	}
	return newSpread(merging).median / newSpread(quiet).median
}

func ratesOf(seconds []second, want func(second) bool) (rates []float64) {
	for _, s := range seconds {
		if want(s) {
			rates = append(rates, s.OpsPerSecond)
		}
	}
	return rates
}

// series is what one engine did in a cell, by round.
func series(slots []slot, cell, engine string, m *metric) (values []float64) {
	for i := range slots {
		if s := &slots[i]; s.Cell == cell && s.Engine == engine {
			values = append(values, m.of(s))
		}
	}
	return values
}

// numbers leaves out what is none: a figure that a slot could not tell.
func numbers(values []float64) []float64 {
	return slices.DeleteFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

// enginesIn returns who took part in a cell, in the order of their first turns.
func enginesIn(slots []slot, cell string) (names []string) {
	for i := range slots {
		if s := &slots[i]; s.Cell == cell && !slices.Contains(names, s.Engine) {
			names = append(names, s.Engine)
		}
	}
	return names
}

// cellsOf returns what was measured, in its order.
func cellsOf(slots []slot) (names []string) {
	for i := range slots {
		if !slices.Contains(names, slots[i].Cell) {
			names = append(names, slots[i].Cell)
		}
	}
	return names
}

// isPeer: all that are not set-ups of our engine.
func isPeer(name string) bool {
	e, err := findEngine(name)
	return err == nil && e.module != ourModule
}

// bestPeer returns the peer with the best median; empty if no peer took part.
func bestPeer(slots []slot, cell string, m *metric) (best string) {
	var bestMedian float64
	for _, name := range enginesIn(slots, cell) {
		if !isPeer(name) {
			continue
		}
		median := newSpread(series(slots, cell, name, m)).median
		if best == "" || (median < bestMedian) == m.less && median != bestMedian {
			best, bestMedian = name, median
		}
	}
	return best
}

// ratios compares two engines round by round.
func ratios(slots []slot, cell, engine, peer string, m *metric) spread {
	ours, theirs := series(slots, cell, engine, m), series(slots, cell, peer, m)
	var values []float64
	for i := range min(len(ours), len(theirs)) {
		values = append(values, ours[i]/theirs[i])
	}
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return newSpread(values)
}

// generatorShare is the largest share of processor time that the generator took.
func generatorShare(slots []slot, cell string) (share float64, nanos int64) {
	for i := range slots {
		if s := &slots[i]; s.Cell == cell {
			var g workload.Generator = s.Run.Summary.Generator
			if g.Share >= share {
				share, nanos = g.Share, g.NanosPerOp
			}
		}
	}
	return share, nanos
}
