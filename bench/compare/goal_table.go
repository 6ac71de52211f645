package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kvd-db/kvd/bench/judge"
)

// printVerdicts prints the final table: each goal with a measurement. The default store
// is judged; the figure for 4 partitions is printed beside it.
func printVerdicts(w io.Writer, slots []slot) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "row\tbest peer\tits rate\t%s\tby CPU\t%s\tgoal\treached\t\n", ours, ours4)
	slots = derive(slots)
	for i := range goals {
		g := &goals[i]
		v, ok := g.judge(slots)
		other, otherOK := g.judgeOther(slots)
		if !ok && !otherOK {
			continue
		}
		answer := v.Answer
		if !ok {
			v, answer = other, func() string { return "-" }
		}
		figure, want := v.Spelled()
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g.Row,
			dash(v.Peer), rateOf(slots, &v), when(ok, figure), costRatio(slots, &v), otherFigure(other, otherOK), want, answer())
	}
	return t.Flush()
}

// judgeOther evaluates the goal for the store with 4 partitions; false if it is not
// compared in this row.
func (g *goal) judgeOther(slots []slot) (v verdict, ok bool) {
	if other, any := g.otherOurs(); any {
		v, ok = g.judgeOf(slots, other)
	}
	return v, ok
}

func otherFigure(v verdict, ok bool) string {
	if !ok {
		return "-"
	}
	figure, _ := v.Spelled()
	return figure
}

func when(ok bool, text string) string {
	if !ok {
		return "-"
	}
	return text
}

func dash(name string) string { return when(name != "", name) }

// rateOf returns the median of the peer.
func rateOf(slots []slot, v *verdict) string {
	if v.Peer == "" {
		return "-"
	}
	m := v.Metric
	return fmt.Sprintf("%.1f %s", judge.NewSpread(judge.Series(slots, v.Cell, v.Peer, m)).Median/m.Scale, m.Unit)
}

// costRatio is the processor time of the peer over ours. It varies less than rates do
// when the machine has other work.
func costRatio(slots []slot, v *verdict) string {
	if v.Peer == "" {
		return "-"
	}
	r := judge.Ratios(slots, v.Cell, v.Peer, v.Contestant, cpuPerOp)
	return fmt.Sprintf("%.2fx", r.Median)
}

// printUnjudged names the goals without a measurement, so that a missing row is not
// taken for a reached goal.
func printUnjudged(w io.Writer, slots []slot) error {
	var lines []string
	slots = derive(slots)
	for i := range goals {
		g := &goals[i]
		if _, ok := g.judge(slots); !ok {
			lines = append(lines, "NOT MEASURED: "+g.Row+"\n")
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
