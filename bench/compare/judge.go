package main

import (
	"math"
	"slices"

	"github.com/kvd-db/kvd/bench/judge"
)

// The types of package judge, for our slots.
type (
	metric  = judge.Metric[slot]
	verdict = judge.Verdict[slot]
)

// Turn identifies the slot: see judge.Slot.
func (s slot) Turn() (cell, engine string) { return s.Cell, s.Engine }

var (
	opsPerSecond = &metric{Unit: "k ops/s", Scale: 1e3, Of: func(s *slot) float64 { return s.Run.Summary.OpsPerSecond }}
	cpuPerOp     = &metric{Unit: "us", Scale: 1, Of: func(s *slot) float64 { return s.Run.Summary.CPUMicrosPerOp }, Less: true}
	getP50       = &metric{Unit: "us", Scale: 1e3, Of: func(s *slot) float64 { return float64(s.Run.Summary.Get.Nanos.P50) }, Less: true}
	getP99       = &metric{Unit: "us", Scale: 1e3, Of: func(s *slot) float64 { return float64(s.Run.Summary.Get.Nanos.P99) }, Less: true}
	stall        = &metric{Unit: "ms", Scale: 1e6, Of: func(s *slot) float64 { return float64(s.Run.Summary.LongestStallNanos) }, Less: true, Worst: true}
	amplified    = &metric{Scale: 1, Of: func(s *slot) float64 { return ratio(s.Run.Written.Calls, s.Run.UserBytes) }, Less: true}
	resident     = &metric{Scale: 1, Of: func(s *slot) float64 { return ratio(s.Run.Memory.PeakBytes, s.Budget) }, Less: true, Worst: true}
	ofDisk       = &metric{Scale: 1, Of: userRateOfDisk}
	steadiness   = &metric{Scale: 1, Of: func(s *slot) float64 { return slowestOfMedian(s.Run.Seconds) }}
	ofPages      = &metric{Scale: 1, Of: diskBytesOfPages, Less: true}
	merging      = &metric{Scale: 1, Of: func(s *slot) float64 { return mergingOfQuiet(s.Run.Seconds) }}
)

func ratio(part, whole int64) float64 { return float64(part) / float64(whole) }

// userRateOfDisk is the user's bytes a second over those of the disk. The time includes
// the sync at the end: bytes that only fill the page cache say nothing about a disk.
func userRateOfDisk(s *slot) float64 {
	return float64(s.Run.UserBytes) / (s.Run.Summary.Seconds + s.Run.SyncTime.Seconds()) / s.DiskRate
}

// pageBytes is what one read of the disk brings at least.
const pageBytes = 4096

// diskBytesOfPages is the bytes that came from the disk over a page for each block that
// the store asked for; NaN if it asked for none.
func diskBytesOfPages(s *slot) float64 { return ratio(s.Run.Read.Disk, s.Run.Read.Blocks*pageBytes) }

// slowestOfMedian is the rate of the slowest second over the median rate; NaN without
// seconds.
func slowestOfMedian(seconds []second) float64 {
	if len(seconds) == 0 {
		return math.NaN()
	}
	rates := make([]float64, len(seconds))
	for i, s := range seconds {
		rates[i] = s.OpsPerSecond
	}
	return slices.Min(rates) / judge.NewSpread(rates).Median
}

// leastStretch is the least time, merging or quiet, that is significant: ten samples of
// a pulse.
const leastStretch = 10 * pulseEvery

// mergingOfQuiet is the number of operations while the store compacted, over the number
// that the rate of quiet time would have given; NaN if the store never compacted or was
// never quiet. The rate of quiet time is that of the same second or, if the store
// compacted during all of it, of the nearest other second, as rates drift with the size
// of the store and with other work on the machine.
func mergingOfQuiet(seconds []second) float64 {
	var merging stretch
	var expected float64
	for i := range seconds {
		s := seconds[i].While
		rate, ok := quietRate(seconds, i)
		if s.Took == 0 || !ok {
			continue
		}
		merging = merging.plus(s)
		expected += rate * s.Took.Seconds()
	}
	if merging.Took < leastStretch {
		return math.NaN()
	}
	return merging.Ops / expected
}

// quietRate is the rate in the quiet part of second i, or of the nearest second that
// has one.
func quietRate(seconds []second, i int) (rate float64, ok bool) {
	for away := range seconds {
		var quiet stretch
		for _, j := range [2]int{i - away, i + away} {
			if j >= 0 && j < len(seconds) && seconds[j].Quiet.Took >= leastStretch {
				quiet = quiet.plus(seconds[j].Quiet)
			}
		}
		if quiet.Took > 0 {
			return quiet.Ops / quiet.Took.Seconds(), true
		}
	}
	return 0, false
}

// mergingShare is the share of the time in which at least one compaction ran; NaN if
// the store does not report it.
func mergingShare(seconds []second) float64 {
	var sum float64
	for _, s := range seconds {
		if s.Merging == nil {
			return math.NaN()
		}
		sum += *s.Merging
	}
	return sum / float64(len(seconds))
}

// isPeer reports whether an engine is not ours.
func isPeer(name string) bool {
	e, err := findEngine(name)
	return err == nil && e.module != ourModule
}

// bestPeer returns the peer with the best median; empty if there is no peer.
func bestPeer(slots []slot, cell string, m *metric) string { return judge.Best(slots, cell, m, isPeer) }

// generatorCost is the generator's cost of an operation, and the largest share that
// this is of the processor time of an operation. It uses the least cost of all slots,
// since other work on the machine only increases it.
func generatorCost(slots []slot, cell string) (nanos int64, share float64) {
	for i := range slots {
		if g := slots[i].Run.Summary.Generator; slots[i].Cell == cell && g.NanosPerOp > 0 && (nanos == 0 || g.NanosPerOp < nanos) {
			nanos = g.NanosPerOp
		}
	}
	for _, name := range judge.Contestants(slots, cell) {
		if cost := judge.NewSpread(judge.Series(slots, cell, name, cpuPerOp)).Median; cost > 0 {
			share = max(share, float64(nanos)/1e3/cost)
		}
	}
	return nanos, share
}
