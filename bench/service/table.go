package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// printSlots prints, for each cell, the medians of each contestant over the rounds.
func printSlots(w io.Writer, slots []slot) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cell := range judge.Cells(slots) {
		fmt.Fprintf(t, "%s\n", cell)
		fmt.Fprintf(t, "\tk keys/s\t%s / it\tget p50/p99/p99.9 us\tset p50/p99/p99.9 us\tclient CPU us\tserver CPU us\tserver MiB\tgenerator us\t\n", ours)
		for _, name := range judge.Contestants(slots, cell) {
			if name != echoAppend {
				printContestant(t, slots, cell, name)
			}
		}
		printOverload(t, slots, cell)
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func printContestant(w io.Writer, slots []slot, cell, name string) {
	median := func(m *metric) float64 {
		values := judge.Numbers(judge.Series(slots, cell, name, m))
		if len(values) == 0 {
			return math.NaN()
		}
		return judge.NewSpread(values).Median / m.Scale
	}
	versus := ""
	if r := judge.Ratios(slots, cell, ours, name, rate); name != ours && !math.IsNaN(r.Median) {
		versus = fmt.Sprintf("%.2f (%.2f-%.2f)", r.Median, r.Least, r.Most)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, decimal(1, median(rate)), versus,
		three(median(getP50), median(getP99), median(getP999)), three(median(setP50), median(setP99), median(setP999)),
		decimal(2, median(clientCPU)), decimal(2, median(serverCPU)), decimal(0, median(serverBytes)), decimal(2, median(generator)))
}

// printOverload prints more figures of an overload than its goals use.
func printOverload(w io.Writer, slots []slot, cell string) {
	for i := range slots {
		s := &slots[i]
		if s.Cell != cell || s.Run.Overload == nil {
			continue
		}
		o := s.Run.Overload
		for _, p := range []struct {
			name string
			part *loadgen.Part
		}{{"calm", &o.Calm}, {"overload", &o.Over}, {"after it", &o.Rest}} {
			perSecond := func(n uint64) float64 { return float64(n) / p.part.Seconds / 1e3 }
			fmt.Fprintf(w, "%s: %.1f k/s due, %.1f k/s answered in time (p50 %v, p99 %v), %.1f k/s too late, %.1f k/s refused (p99 %v), "+
				"%.1f k/s failed, %.1f k/s unsent\n", p.name,
				perSecond(p.part.Due), perSecond(p.part.Accepted.Count), time.Duration(p.part.Accepted.Nanos.P50), time.Duration(p.part.Accepted.Nanos.P99), perSecond(p.part.Late),
				perSecond(p.part.Refused.Count), time.Duration(p.part.Refused.Nanos.P99), perSecond(p.part.Failed), perSecond(p.part.Unsent))
		}
	}
}

// printVerdicts prints the final table: each goal with a measurement, and the names of
// the other goals of the selected cells, so that a missing row is not taken for a
// reached goal.
func printVerdicts(w io.Writer, slots []slot, wanted []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "row\tpeer\tits figure\t%s\tby CPU\t%s\tgoal\treached\t\n", ours, ours4)
	var missing strings.Builder
	for i := range goals {
		g := &goals[i]
		v, ok := g.judge(slots)
		if !ok {
			if slices.Contains(wanted, g.Cells[0]) {
				fmt.Fprintf(&missing, "NOT MEASURED: %s\n", g.Row)
			}
			continue
		}
		figure, want := v.Spelled()
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n",
			g.Row, dash(v.Peer), peerFigure(slots, &v), figure, byCPU(slots, &v), otherFigure(slots, g), want, v.Answer())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, missing.String())
	return err
}

// peerFigure returns the median of the peer.
func peerFigure(slots []slot, v *judge.Verdict[slot]) string {
	if v.Peer == "" {
		return "-"
	}
	m := v.Metric
	return fmt.Sprintf("%.1f %s", judge.NewSpread(judge.Series(slots, v.Cell, v.Peer, m)).Median/m.Scale, m.Unit)
}

// byCPU is the processor time of the peer's two processes for a key over ours. It
// varies less than rates do when the machine has other work.
func byCPU(slots []slot, v *judge.Verdict[slot]) string {
	if v.Peer == "" || v.Metric != rate {
		return "-"
	}
	return fmt.Sprintf("%.2fx", judge.Ratios(slots, v.Cell, v.Peer, v.Contestant, bothCPU).Median)
}

// otherFigure is the figure of a goal for 4 partitions.
func otherFigure(slots []slot, g *goal) string {
	other, any := g.otherOurs()
	if !any {
		return "-"
	}
	v, ok := g.judgeOf(slots, other)
	if !ok {
		return "-"
	}
	figure, _ := v.Spelled()
	return figure
}

func dash(name string) string {
	if name == "" {
		return "-"
	}
	return name
}

// decimal formats a figure; a dash if there is none.
func decimal(digits int, v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// three formats latencies; a dash if there are none, or if the last one is not known.
func three(a, b, c float64) string {
	if math.IsNaN(a) {
		return "-"
	}
	return fmt.Sprintf("%.0f/%.0f/%s", a, b, decimal(0, c))
}
