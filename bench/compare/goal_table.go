package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kvd-db/kvd/bench/judge"
)

// printVerdicts prints the final table: each goal with a measurement. A goal is judged
// with four partitions; the figure for the default number of partitions is printed
// beside it.
func printVerdicts(w io.Writer, slots []slot) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "row\tbest peer\tits rate\t%s\tby CPU\t%s\tgoal\treached\t\n", ours4, ours)
	for i := range goals {
		g := &goals[i]
		v, ok := g.Judge(slots, ours4, isPeer)
		other, otherOK := g.Judge(slots, ours, isPeer)
		if !ok {
			v = other
		}
		if !ok && !otherOK {
			continue
		}
		figure, want := v.Spelled()
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g.Row,
			dash(v.Peer), rateOf(slots, &v), when(ok, figure), costRatio(slots, &v), otherFigure(other, otherOK), want, v.Answer())
	}
	return t.Flush()
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
	return fmt.Sprintf("%.1f %s", judge.NewSpread(judge.Series(slots, v.Cells[0], v.Peer, m)).Median/m.Scale, m.Unit)
}

// costRatio is the processor time of the peer over ours. It varies less than rates do
// when the machine has other work.
func costRatio(slots []slot, v *verdict) string {
	if v.Peer == "" {
		return "-"
	}
	r := judge.Ratios(slots, v.Cells[0], v.Peer, v.Contestant, cpuPerOp)
	return fmt.Sprintf("%.2fx", r.Median)
}

// printUnjudged names the goals without a measurement, so that a missing row is not
// taken for a reached goal.
func printUnjudged(w io.Writer, slots []slot) error {
	var lines []string
	for i := range goals {
		g := &goals[i]
		_, four := g.Judge(slots, ours4, isPeer)
		_, other := g.Judge(slots, ours, isPeer)
		if !four && !other {
			lines = append(lines, "NOT MEASURED: "+g.Row+"\n")
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
