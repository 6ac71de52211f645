package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// preloadQuiet is how long a preload may take before its progress is shown.
const preloadQuiet = 2 * time.Second

// liveView shows the progress of a run, one line a second: on a terminal redrawn in place,
// with a curve of the last seconds; otherwise one line after the other.
//
// It ignores write errors, so that a closed output does not fail a run.
type liveView struct {
	out      io.Writer
	terminal bool
	began    time.Time
	drawn    bool // the terminal's line is not ended yet
	rates    []float64
}

func newLiveView(out io.Writer) *liveView {
	f, ok := out.(*os.File)
	return &liveView{out: out, terminal: ok && term.IsTerminal(int(f.Fd())), began: time.Now()}
}

func (v *liveView) preload(done, total uint64) { v.progress("preload", done, total) }

func (v *liveView) audit(done, total uint64) { v.progress("audit", done, total) }

func (v *liveView) progress(what string, done, total uint64) {
	if time.Since(v.began) < preloadQuiet {
		return
	}
	v.show(fmt.Sprintf("%s  %s of %s keys (%.0f %%)", what, grouped(float64(done)), grouped(float64(total)),
		100*float64(done)/float64(total)))
}

// second shows one second of a run. The count of errors is always 0: the first error
// ends the run.
func (v *liveView) second(s loadgen.Sample) {
	v.showRate(fmt.Sprintf("%5.0fs  %s  errors 0", time.Duration(s.NanoTime).Seconds(), rateAndTails(&s)), s.OpsPerSecond)
}

// sample shows one second of a trial.
func (v *liveView) sample(of trialLabel, s loadgen.Sample) {
	v.showRate(fmt.Sprintf("%s  %3.0fs  %s  conflicts %s  errors 0", of, time.Duration(s.NanoTime).Seconds(),
		rateAndTails(&s), grouped(float64(s.Conflicts))), s.OpsPerSecond)
}

// rateAndTails describes the rate of a second, and the p99 of each kind of operation.
func rateAndTails(s *loadgen.Sample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9s ops/s  p99:", grouped(s.OpsPerSecond))
	for _, o := range s.Operations {
		fmt.Fprintf(&b, " %s %-7s", o.Name, nanos(o.Nanos.P99))
	}
	return b.String()
}

// showRate adds the curve of the last seconds to a line, on a terminal.
func (v *liveView) showRate(line string, rate float64) {
	if v.terminal {
		v.rates = append(v.rates, rate)
		v.rates = v.rates[max(len(v.rates)-sparklineSeconds, 0):]
		line += "  " + sparkline(v.rates)
	}
	v.show(line)
}

func (v *liveView) show(line string) {
	if v.terminal {
		v.drawn = true
		_, _ = fmt.Fprintf(v.out, "\r\x1b[K%s", line)
		return
	}
	_, _ = fmt.Fprintln(v.out, line)
}

// end leaves the cursor on a line of its own.
func (v *liveView) end() {
	if v.drawn {
		v.drawn = false
		_, _ = fmt.Fprintln(v.out)
	}
}

const sparklineSeconds = 30

var sparks = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values as columns, from zero up to the largest.
func sparkline(values []float64) string {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, v)
	}
	var b strings.Builder
	for _, v := range values {
		column := 0
		if largest > 0 {
			column = int(v / largest * float64(len(sparks)-1))
		}
		b.WriteRune(sparks[column])
	}
	return b.String()
}
