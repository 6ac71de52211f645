package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// printTrials prints the table of all trials, warnings, and a summary in one sentence about
// what.
func printTrials(t *trials, out io.Writer, err error, what string) error {
	var b bytes.Buffer
	trialTable(&b, t.rows)
	e := loadgen.ReadEnvironment(t.options.data)
	fmt.Fprintf(&b, "\nmachine      %s, GOMAXPROCS %d, %s, %s, Linux %s\n", e.CPU, e.GOMAXPROCS, bytesText(e.MemoryBytes), e.Go, e.Kernel)
	for _, w := range trialWarnings(t.rows, &e) {
		fmt.Fprintf(&b, "! %s\n", w)
	}
	fmt.Fprintf(&b, "\n%s on %s: %s.\n", what, t.info, verdict(t.rows, err))
	_, writeErr := b.WriteTo(out)
	return writeErr
}

// verdict returns whether the figures can be used.
func verdict(rows []trialRow, err error) string {
	switch {
	case err != nil:
		return "ended by an error, so do not use these figures"
	case slices.ContainsFunc(rows, func(r trialRow) bool { return r.trial.Interrupted }):
		return "interrupted, all answers right"
	}
	return "all answers right, all records audited"
}

// trialTable writes a row for each trial and one for each of its operations. The
// column "x" relates a rate to that of the workload's first trial.
func trialTable(out io.Writer, rows []trialRow) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\tthreads\toperation\tcount\tops/s\tx\tmean\tp50\tp99\tp99.9\tmax\tconflicts\t")
	first := make(map[string]float64)
	for _, r := range rows {
		rate, seen := first[r.Workload]
		if !seen {
			rate = r.trial.OpsPerSecond
			first[r.Workload] = rate
		}
		conflicts := "-"
		if hasTransactions(r.trial) {
			conflicts = percent(&r.trial.ConflictRate)
		}
		fmt.Fprintf(t, "%s\t%d\tall\t%s\t%s\t%s\t\t\t\t\t\t%s\t\n", r.Workload, r.Threads,
			grouped(float64(r.trial.Ops)), grouped(r.trial.OpsPerSecond), times(r.trial.OpsPerSecond, rate), conflicts)
		for _, o := range r.trial.Operations {
			fmt.Fprintf(t, "\t\t%s\t%s\t%s\t\t%s\t%s\t%s\t%s\t%s\t\t\n", o.Name, grouped(float64(o.Count)), grouped(o.OpsPerSecond),
				nanos(o.MeanNanos), nanos(o.Nanos.P50), nanos(o.Nanos.P99), nanos(o.Nanos.P999), nanos(o.Nanos.Max))
		}
	}
	_ = t.Flush() // into memory
}

func hasTransactions(t *loadgen.Trial) bool {
	return t.Operation("read-modify-write").Count+t.Operation("transaction").Count > 0
}

// times writes by how much one rate exceeds another.
func times(rate, than float64) string {
	if than == 0 {
		return "-"
	}
	return strconv.FormatFloat(rate/than, 'f', 2, 64)
}

// trialWarnings returns the reasons for which the figures may mislead.
func trialWarnings(rows []trialRow, e *loadgen.Environment) []string {
	var warnings []string
	for _, r := range rows {
		for _, w := range r.trial.Generator.Warnings() {
			warnings = append(warnings, fmt.Sprintf("%s: %s", r.trialLabel, w))
		}
	}
	warnings = append(warnings, "Closed loop: a worker asks nothing while it waits, so latencies are optimistic.")
	return append(warnings, e.Warnings(rows[len(rows)-1].trial.DataBytes)...)
}
