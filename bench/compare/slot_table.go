package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// printSlots prints, for each cell, the medians of each engine over the rounds.
func printSlots(w io.Writer, slots []slot) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cell := range judge.Cells(slots) {
		printCell(t, slots, cell)
	}
	return t.Flush()
}

func printCell(w io.Writer, slots []slot, cell string) {
	fmt.Fprintf(w, "%s\n", cell)
	fmt.Fprint(w, "engine\tk ops/s\tto the best peer\tCPU us/op\tput p50/p99/p99.9/max us\tget p50/p99/p99.9/max us\t"+
		"stall ms\tslowest s\twritten/user\tdirtied/user\tread KiB/op\tdisk MB\tpeak MiB\t\n")
	best := bestPeer(slots, cell, opsPerSecond)
	for _, name := range judge.Contestants(slots, cell) {
		median := func(of func(*outcome) float64) float64 {
			return judge.NewSpread(judge.Series(slots, cell, name, &metric{Of: func(s *slot) float64 { return of(&s.Run) }})).Median
		}
		versus := ""
		if best != "" && name != best {
			r := judge.Ratios(slots, cell, name, best, opsPerSecond)
			versus = fmt.Sprintf("%.2f (%.2f-%.2f)", r.Median, r.Least, r.Most)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name,
			median(func(o *outcome) float64 { return o.Summary.OpsPerSecond })/1e3,
			versus,
			median(func(o *outcome) float64 { return o.Summary.CPUMicrosPerOp }),
			latencies(median, func(o *outcome) loadgen.Kind { return o.Summary.Put }),
			latencies(median, func(o *outcome) loadgen.Kind { return o.Summary.Get }),
			decimal(0, judge.NewSpread(judge.Series(slots, cell, name, stall)).Most/stall.Scale),
			decimal(2, median(func(o *outcome) float64 { return slowestOfMedian(o.Seconds) })),
			decimal(2, median(func(o *outcome) float64 { return ratio(o.Written.Calls, o.UserBytes) })),
			decimal(2, median(func(o *outcome) float64 { return ratio(o.Written.Dirtied, o.UserBytes) })),
			decimal(2, median(func(o *outcome) float64 { return ratio(o.Read.Disk, int64(o.Summary.Ops)) / 1024 })),
			decimal(0, median(func(o *outcome) float64 { return float64(o.DiskBytes) / 1e6 })),
			decimal(0, median(func(o *outcome) float64 { return mebibytes(o.Memory.PeakBytes) })))
	}
	if nanos, share := generatorCost(slots, cell); nanos > 0 {
		fmt.Fprintf(w, "the generator took %d ns an operation, at most %.1f %% of the processor time of an engine\n", nanos, 100*share)
	}
	printMerging(w, slots, cell)
	fmt.Fprintln(w)
}

// printMerging prints the cost of compactions for engines that report it.
func printMerging(w io.Writer, slots []slot, cell string) {
	for _, name := range judge.Contestants(slots, cell) {
		if costs := judge.Numbers(judge.Series(slots, cell, name, merging)); len(costs) > 0 {
			share := judge.NewSpread(judge.Series(slots, cell, name, &metric{Of: func(s *slot) float64 { return mergingShare(s.Run.Seconds) }}))
			rate := judge.NewSpread(costs).Median
			fmt.Fprintf(w, "%s merged in %.1f %% of the time, and then had %.2f of the rate of quiet time: in all %.1f %% less\n",
				name, 100*share.Median, rate, 100*share.Median*(1-rate))
		}
	}
}

// decimal formats a figure; a dash if there is none.
func decimal(digits int, v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// latencies formats those of one kind of operation; a dash if there were none.
func latencies(median func(func(*outcome) float64) float64, kind func(*outcome) loadgen.Kind) string {
	if median(func(o *outcome) float64 { return float64(kind(o).Count) }) == 0 {
		return "-"
	}
	at := func(of func(loadgen.Latency) int64) float64 {
		return median(func(o *outcome) float64 { return float64(of(kind(o).Nanos)) }) / 1e3
	}
	return fmt.Sprintf("%.0f/%.0f/%.0f/%.0f",
		at(func(l loadgen.Latency) int64 { return l.P50 }), at(func(l loadgen.Latency) int64 { return l.P99 }),
		at(func(l loadgen.Latency) int64 { return l.P999 }), at(func(l loadgen.Latency) int64 { return l.Max }))
}
