package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
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
	mostLate       = 0.01 // of the operations of an open loop
	mostOwnCPU     = 0.90 // of the machine, if the store is a server
	mostOtherCPU   = 0.10 // of the machine
	leastForP99    = 100  // operations; of fewer, one is more than a hundredth
	leastSync      = 20e3 // ns; no disk that keeps its promise is faster
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
	if w.unverified == 0 && r.Measured() > 0 {
		checked = "Every answer was checked, and all were right."
	}
	add(w.unverified == 0, "", "The answers of %s were not checked.", Plural(w.unverified, "run"))
	add(w.errors == "", checked, "A run ended with an error, so its figures mean nothing: %s", w.errors)
	add(w.interrupted == 0, "", "%s interrupted.", Plural(w.interrupted, "run"))
	add(r.Measured() >= r.Planned, "", "Only %d of %s were measured: the experiment ended early, or still goes on.", r.Measured(), Plural(r.Planned, "run"))
	add(w.runs >= leastRuns, fmt.Sprintf("At least %d runs for each figure.", w.runs), "Only %d of %d runs for some figures: too few to know their spread.", w.runs, leastRuns)
	agree := ""
	if w.runs > 1 {
		agree = "Runs of the same agree to within " + chart.Percent(w.spread) + "."
	}
	add(w.spread <= mostSpread, agree, "Runs of the same differ by up to %s: %s.", chart.Percent(w.spread), w.spreadOf)
	add(w.generator <= mostGenerator, "The load generator took at most "+chart.Percent(w.generator)+" of the processor time.",
		"The load generator took up to %s of the processor time, so rates are lower bounds.", chart.Percent(w.generator))
	add(w.late <= mostLateNanos, "", "Timers woke the generator up to %s late (p99), which latencies contain.", chart.Nanos(w.late))
	add(w.woken <= mostLate, punctual(w), "The load generator began up to %s of the operations over 1 ms late, as it did not get the processor: latencies are too long.", chart.Percent(rounded(w.woken)))
	if r.Experiment != "sweep" { // which shows where it begins
		add(w.busy <= mostLate, "", "Up to %s of the operations waited over 1 ms for a free thread, and latencies contain that: the load is too much for the store, or for so few threads.", chart.Percent(rounded(w.busy)))
		add(w.unanswered <= loadgen.MostUnanswered, "", "Up to %s of the operations that were due were refused or never began: rates and latencies by kind are those of the others.", chart.Percent(rounded(w.unanswered)))
	}
	add(w.ownCPU <= mostOwnCPU, "", "The load generator used %s of all processors, so it may be the limit in place of the server.", chart.Percent(rounded(w.ownCPU)))
	quiet := ""
	if w.otherKnown {
		quiet = fmt.Sprintf("Other processes and the hypervisor used at most %s of the processors.", chart.Percent(rounded(w.otherCPU)))
	}
	also := ""
	if w.server {
		also = " (the server among them, if it ran here)"
		if w.serverCPU > 0 {
			also = fmt.Sprintf(" (the server among them, if it ran here: it used up to %s of its own)", chart.Percent(rounded(w.serverCPU)))
		}
	}
	add(w.otherCPU <= mostOtherCPU, quiet, "Other processes and the hypervisor used up to %s of the processors%s: another run may differ.", chart.Percent(rounded(w.otherCPU)), also)
	if sync := float64(r.Environment.SyncNanos); sync > 0 {
		add(sync >= leastSync, fmt.Sprintf("A sync of the disk took %s.", chart.Nanos(sync)), "A sync of the disk took only %s: it does not reach a disk, so nothing here shows the cost of durability.", chart.Nanos(sync))
	}
	governor := r.Environment.Governor
	add(governor == "" || governor == "performance", "", "The processors' frequency is governed by %q in place of \"performance\", and varies.", governor)
	add(w.fewest >= leastForP99, "", "Only %d of the operation %s in a run: the p99 of so few is the longest of them.", w.fewest, w.fewestOf)
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
	unverified  int // runs
	interrupted int
	runs        int
	spread      float64
	spreadOf    string
	generator   float64
	late        float64
	seconds     float64
	fewest      uint64 // of an operation in a run
	fewestOf    string
	fits        bool

	open, server, otherKnown bool
	woken, busy              float64 // shares of the operations that were due in a run and began late
	unanswered               float64 // share of those that were refused or never began
	ownCPU                   float64 // of a run against a server
	serverCPU                float64 // 0: not known
	otherCPU                 float64
}

// punctual says that the operations of an open loop began in time, if they did.
func punctual(w extremes) string {
	if !w.open || w.busy > mostLate || w.unanswered > loadgen.MostUnanswered {
		return ""
	}
	return "The load generator began its operations in time."
}

// rounded keeps tenths of a percent.
func rounded(share float64) float64 { return math.Round(1000*share) / 1000 }

// OfServer reports whether the target of a cell is a server.
func OfServer(c *results.Cell) bool {
	var target struct {
		Kind string `json:"kind"`
	}
	data, err := json.Marshal(c.Target)
	return err == nil && json.Unmarshal(data, &target) == nil && target.Kind == "server"
}

// load takes the loads of processors and the late operations of a run into account.
func (w *extremes) load(run *results.Run, server bool) {
	if run.Late != nil {
		w.open = true
		w.woken = max(w.woken, loadgen.Ratio(run.Late.Woken, run.Due()))
		w.busy = max(w.busy, loadgen.Ratio(run.Late.Busy, run.Due()))
		w.unanswered = max(w.unanswered, run.Unanswered())
	}
	if run.OwnCPU != nil && server {
		w.server, w.ownCPU = true, max(w.ownCPU, *run.OwnCPU)
	}
	if use, _ := serverUse(run); use != nil {
		w.serverCPU = max(w.serverCPU, use.Share)
	}
	if run.OtherCPU != nil {
		w.otherKnown, w.otherCPU = true, max(w.otherCPU, *run.OtherCPU)
	}
}

func worst(r *results.Result) extremes {
	w := extremes{runs: 1 << 30, seconds: 1 << 30, fewest: leastForP99}
	for _, c := range r.Cells {
		w.runs = min(w.runs, len(c.Runs))
		server := OfServer(c)
		if least, median, most := c.Rates(); median > 0 && (most-least)/median > w.spread {
			w.spread, w.spreadOf = (most-least)/median, c.Name()
		}
		for _, run := range c.Runs {
			if run.Error != "" && w.errors == "" {
				w.errors = run.Error
			}
			if run.Unverified {
				w.unverified++
			}
			if run.Interrupted {
				w.interrupted++
			}
			w.generator = max(w.generator, run.Generator.Share)
			if l := run.Generator.LatenessNanos; l != nil {
				w.late = max(w.late, float64(l.P99))
			}
			w.load(run, server)
			if run.Ops > 1 { // a run of one operation is as long as that
				w.seconds = min(w.seconds, run.Seconds)
				for _, o := range run.Trial.Operations {
					if o.Count > 0 && o.Count < w.fewest {
						w.fewest, w.fewestOf = o.Count, o.Name
					}
				}
			}
			if n := run.DataBytes; n != nil && r.Environment.MemoryBytes > 0 && *n < r.Environment.MemoryBytes/2 && run.Measures[results.Evicted] == 0 {
				w.fits = true
			}
		}
	}
	if len(r.Cells) == 0 {
		w.runs, w.seconds = 0, 0
	}
	return w
}
