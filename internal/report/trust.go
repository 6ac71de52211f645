package report

import (
	"fmt"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// Check is one answer to the question whether the figures can be trusted.
type Check struct {
	OK   bool
	Text string
}

// Bounds of Trust. Guessed: below them, the effect is smaller than the spread between
// two runs on a quiet machine.
const (
	leastRuns      = 3
	mostSpread     = 0.15 // of the rates of a cell, relative to their median
	mostGenerator  = 0.10 // of the processor time
	mostLateNanos  = 1e6  // p99 of the timers
	shortestSecond = 10   // of a run
)

// Trust returns reasons to trust the figures of a result, and reasons not to.
func Trust(r *results.Result) []Check {
	var checks []Check
	add := func(ok bool, yes, format string, args ...any) {
		switch {
		case !ok:
			checks = append(checks, Check{false, fmt.Sprintf(format, args...)})
		case yes != "":
			checks = append(checks, Check{true, yes})
		}
	}
	w := worst(r)
	checked := ""
	if !w.unverified {
		checked = "Every answer was checked, and all were right."
	}
	add(!w.unverified, "", "The answers were not checked (--verify=false).")
	add(w.errors == "", checked, "A run ended with an error, so its figures mean nothing: %s", w.errors)
	add(w.interrupted == 0, "", "%s interrupted.", Plural(w.interrupted, "run"))
	add(w.runs >= leastRuns, fmt.Sprintf("At least %d runs for each figure.", w.runs), "Only %d of %d runs for some figures: their spread is not known.", w.runs, leastRuns)
	agree := ""
	if w.runs > 1 {
		agree = "Runs of the same agree to within " + chart.Percent(w.spread) + "."
	}
	add(w.spread <= mostSpread, agree, "Runs of the same differ by up to %s: %s.", chart.Percent(w.spread), w.spreadOf)
	add(w.generator <= mostGenerator, "The load generator took at most "+chart.Percent(w.generator)+" of the processor time.",
		"The load generator took up to %s of the processor time, so rates are lower bounds.", chart.Percent(w.generator))
	add(w.late <= mostLateNanos, "", "Timers woke the generator up to %s late (p99), which latencies contain.", chart.Nanos(w.late))
	add(w.seconds >= shortestSecond, "", "Runs of %s are short: flushes and merges may not have reached a steady state.", chart.Seconds(w.seconds))
	add(r.Scale >= 1 || r.Scale == 0, "", "Times and sizes were scaled by %v: compare shapes, not figures, with runs at full scale.", r.Scale)
	add(!w.fits, "", "The data fit into memory, so the page cache served reads more than the disk.")
	add(r.Environment.FileSystem != "tmpfs", "", "The data lay on tmpfs: no write ever reached a disk.")
	add(!strings.HasSuffix(r.Environment.Commit, "+dirty"), "", "The program was built from a tree with changes that no commit has.")
	return checks
}

// extremes are the worst of all runs.
type extremes struct {
	errors      string
	unverified  bool
	interrupted int
	runs        int
	spread      float64
	spreadOf    string
	generator   float64
	late        float64
	seconds     float64
	fits        bool
}

func worst(r *results.Result) extremes {
	w := extremes{runs: 1 << 30, seconds: 1 << 30}
	for _, c := range r.Cells {
		w.runs = min(w.runs, len(c.Runs))
		if least, median, most := c.Rates(); median > 0 && (most-least)/median > w.spread {
			w.spread, w.spreadOf = (most-least)/median, c.Name()
		}
		for _, run := range c.Runs {
			if run.Error != "" && w.errors == "" {
				w.errors = run.Error
			}
			w.unverified = w.unverified || run.Unverified
			if run.Interrupted {
				w.interrupted++
			}
			w.generator = max(w.generator, run.Generator.Share)
			if l := run.Generator.LatenessNanos; l != nil {
				w.late = max(w.late, float64(l.P99))
			}
			w.seconds = min(w.seconds, run.Seconds)
			if n := run.DataBytes; n != nil && r.Environment.MemoryBytes > 0 && *n < r.Environment.MemoryBytes/2 {
				w.fits = true
			}
		}
	}
	if len(r.Cells) == 0 {
		w.runs, w.seconds = 0, 0
	}
	return w
}
