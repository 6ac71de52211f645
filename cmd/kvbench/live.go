package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// The progress of what is not measured is shown if that takes longer than quiet. If the output
// is no terminal, it then gets a line each progressEvery, and one at the end.
const (
	quiet         = 2 * time.Second
	progressEvery = 5 * time.Second
)

// liveView shows the progress of a run: on a terminal a line that is redrawn each second, with
// a curve of the last seconds; otherwise one line after the other.
//
// It ignores write errors, so that a closed output does not fail a run.
type liveView struct {
	out      io.Writer
	terminal bool
	columns  func() int // of the terminal; 0: not known
	drawn    bool       // the terminal's line is not ended yet
	rates    []float64

	doing   string    // the last work of which the progress was told
	doingAt time.Time // when that was shown; zero if it was not
	ended   bool      // its end was shown
}

func newLiveView(out io.Writer) *liveView {
	v := &liveView{out: out}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		v.terminal = true
		v.columns = func() int {
			columns, _, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return 0
			}
			return columns
		}
	}
	return v
}

// progress shows how far work is that takes longer than quiet.
func (v *liveView) progress(p loadgen.Progress) {
	if p.Elapsed >= quiet && v.due(&p) {
		v.show(progressText(&p))
	}
}

// due reports whether to show the progress now.
func (v *liveView) due(p *loadgen.Progress) bool {
	ends := p.Total > 0 && p.Done == p.Total
	if p.What != v.doing || v.ended && !ends {
		v.doing, v.doingAt, v.ended = p.What, time.Time{}, false
	}
	first, last := v.doingAt.IsZero(), ends && !v.ended
	if !v.terminal && !first && !last && time.Since(v.doingAt) < progressEvery {
		return false
	}
	v.doingAt, v.ended = time.Now(), ends
	return true
}

// progressText says how far work is, and when it will end if that is known.
func progressText(p *loadgen.Progress) string {
	text := p.What
	switch {
	case p.Elapsed == 0 || p.Total > 0 && p.Done == 0:
		return text
	case p.Total == 0:
		return text + "  " + p.Elapsed.Round(time.Second).String()
	case p.Things == "ms":
		text += fmt.Sprintf("  %.0f %% of %v", 100*float64(p.Done)/float64(p.Total), time.Duration(p.Total)*time.Millisecond)
	default:
		text += fmt.Sprintf("  %.0f %% of %s %s, %s a second", math.Floor(100*float64(p.Done)/float64(p.Total)), grouped(float64(p.Total)), p.Things,
			grouped(float64(p.Done)/p.Elapsed.Seconds()))
	}
	if left, ok := p.Left(); ok {
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}

// second shows one second of a run. The count of errors is always 0: the first error
// ends the run, unless the store refuses an operation of an open loop.
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
	refused := uint64(0)
	fmt.Fprintf(&b, "%9s ops/s  p99:", grouped(s.OpsPerSecond))
	for _, o := range s.Operations {
		if o.Count > 0 {
			fmt.Fprintf(&b, " %s %-7s", o.Name, nanos(o.Nanos.P99))
		}
		refused += o.Refused
	}
	if refused > 0 {
		fmt.Fprintf(&b, " refused %s", grouped(float64(refused)))
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
		_, _ = fmt.Fprintf(v.out, "\r\x1b[K%s", v.fit(line))
		return
	}
	_, _ = fmt.Fprintln(v.out, line)
}

// fit returns what a terminal can show of a line: it cannot redraw a line in several rows.
func (v *liveView) fit(line string) string {
	if v.columns == nil {
		return line
	}
	columns, runes := v.columns(), []rune(line)
	if columns == 0 || len(runes) < columns {
		return line
	}
	return string(runes[:columns-1])
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
