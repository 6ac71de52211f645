package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"text/tabwriter"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/bench/report"
)

// round holds the results of the engines in one round, by their index in the list.
type round map[shape][]result

// units is the number of scans if they are short, otherwise of entries.
func (r result) units(s shape, o *scanOptions) float64 {
	switch s {
	case shapeShort:
		return float64(o.shortScans)
	case shapePair:
		return float64(o.shortScans / scanThreads * scanThreads)
	}
	return float64(r.Entries)
}

// rate is the rate of engine i in a round, and cost the CPU seconds for each unit.
func (r round) rate(s shape, i int, o *scanOptions) float64 {
	return r[s][i].units(s, o) / r[s][i].Elapsed.Seconds()
}

func (r round) cost(s shape, i int, o *scanOptions) float64 {
	return r[s][i].CPU.Seconds() / r[s][i].units(s, o)
}

// spreadOf applies f to the measured rounds.
func spreadOf(rounds []round, f func(round) float64) judge.Spread {
	var values []float64
	for _, r := range rounds[1:] {
		values = append(values, f(r))
	}
	return judge.NewSpread(values)
}

// printScans prints the results of each engine, how ours compares with each, and the
// CPU time and memory of the scans.
func printScans(w io.Writer, o *scanOptions, dir string, processes []*engineWorker, rounds []round) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%d entries of %d + %d bytes, loaded in %s order; %d MiB; %d rounds\n",
		o.data.Keys, keyBytes, o.data.ValueBytes, o.data.Order, o.memory, o.rounds)
	report.PrintEnvironment(table, dir, commit)
	printRates(table, o, processes, rounds)
	printRatios(table, o, processes, rounds)
	printCosts(table, o, processes, rounds)
	printMemory(table, processes, rounds)
	return table.Flush()
}

// heads are the columns of all shapes.
func (o *scanOptions) heads() (text string) {
	for _, s := range o.shapes() {
		text += string(s) + "\t"
	}
	return text
}

// printRates gives medians.
func printRates(w io.Writer, o *scanOptions, processes []*engineWorker, rounds []round) {
	fmt.Fprintf(w, "engine\tversion\t%s\n", o.heads())
	fmt.Fprint(w, "\t\t")
	for _, s := range o.shapes() {
		if s.isShort() {
			fmt.Fprintf(w, "k scans of %d/s\t", shortEntries)
		} else {
			fmt.Fprint(w, "M entries/s\t")
		}
	}
	fmt.Fprintln(w)
	for i, p := range processes {
		fmt.Fprintf(w, "%s\t%s\t", p.name, version(p.name))
		for _, s := range o.shapes() {
			unit := 1e6
			if s.isShort() {
				unit = 1e3
			}
			fmt.Fprintf(w, "%.2f\t", spreadOf(rounds, func(r round) float64 { return r.rate(s, i, o) }).Median/unit)
		}
		fmt.Fprintln(w)
	}
}

// printRatios compares within rounds, whose runs are seconds apart, so that slow
// changes of the machine matter little.
func printRatios(w io.Writer, o *scanOptions, processes []*engineWorker, rounds []round) {
	us := slices.IndexFunc(processes, func(p *engineWorker) bool { return p.name == ours })
	if us < 0 {
		return
	}
	fmt.Fprintf(w, "\n%s / engine\t%s\n", ours, o.heads())
	for i, p := range processes {
		if i == us {
			continue
		}
		fmt.Fprintf(w, "%s\t", p.name)
		for _, s := range o.shapes() {
			ratio := spreadOf(rounds, func(r round) float64 { return r.rate(s, us, o) / r.rate(s, i, o) })
			fmt.Fprintf(w, "%.2f (%.2f-%.2f)\t", ratio.Median, ratio.Least, ratio.Most)
		}
		fmt.Fprintln(w)
	}
}

// printCosts prints medians of the CPU time, including garbage collection and other
// threads. It varies less than rates do when the machine has other work.
func printCosts(w io.Writer, o *scanOptions, processes []*engineWorker, rounds []round) {
	fmt.Fprintf(w, "\nCPU\t%s\n\t", o.heads())
	for _, s := range o.shapes() {
		if s.isShort() {
			fmt.Fprint(w, "us/scan\t")
		} else {
			fmt.Fprint(w, "ns/entry\t")
		}
	}
	fmt.Fprintln(w)
	for i, p := range processes {
		fmt.Fprintf(w, "%s\t", p.name)
		for _, s := range o.shapes() {
			unit := 1e-9
			if s.isShort() {
				unit = 1e-6
			}
			cost := spreadOf(rounds, func(r round) float64 { return r.cost(s, i, o) })
			fmt.Fprintf(w, "%.1f (%.1f-%.1f)\t", cost.Median/unit, cost.Least/unit, cost.Most/unit)
		}
		fmt.Fprintln(w)
	}
}

// printMemory prints how much a process grew during a scan of everything.
func printMemory(w io.Writer, processes []*engineWorker, rounds []round) {
	fmt.Fprint(w, "\nMiB resident\tbefore\tfirst scan\tbefore\tlater scans\t\n")
	for i, p := range processes {
		first := rounds[0][shapeForward][i].Memory
		before := spreadOf(rounds, func(r round) float64 { return mebibytes(r[shapeForward][i].Memory.BeforeBytes) })
		growth := spreadOf(rounds, func(r round) float64 { return mebibytes(r[shapeForward][i].Memory.grown()) })
		fmt.Fprintf(w, "%s\t%.0f\t+%.0f\t%.0f\t+%.0f (at most +%.0f)\t\n", p.name,
			mebibytes(first.BeforeBytes), mebibytes(first.grown()), before.Median, growth.Median, growth.Most)
	}
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// version returns the version of an engine's module, empty if it is not known.
func version(name string) string {
	e, err := findEngine(name)
	info, ok := debug.ReadBuildInfo()
	if err != nil || !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == e.module && m.Replace == nil {
			return m.Version
		}
	}
	return "" // built from this tree: the report names the commit
}
