package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printVerdicts prints the final table: each goal that something was measured of.
// With four partitions a goal is reached or not; what the default number of them
// makes of it stands beside.
func printVerdicts(w io.Writer, slots []slot) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "row\tbest peer\tits rate\t%s\tby CPU\t%s\tgoal\treached\t\n", ours4, ours)
	for i := range goals {
		g := &goals[i]
		v, ok := g.judge(slots, ours4)
		other, otherOK := g.judge(slots, ours)
		if !ok {
			v = other
		}
		if !ok && !otherOK {
			continue
		}
		figure, want := v.spelled()
		reached := "NO"
		switch {
		case g.want == 0:
			reached = "-"
		case v.reached:
			reached = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g.row,
			dash(v.peer), rateOf(slots, &v), when(ok, figure), costRatio(slots, &v), otherFigure(other, otherOK), want, reached)
	}
	return t.Flush()
}

func otherFigure(v verdict, ok bool) string {
	if !ok {
		return "-"
	}
	figure, _ := v.spelled()
	return figure
}

func when(ok bool, text string) string {
	if !ok {
		return "-"
	}
	return text
}

func dash(name string) string { return when(name != "", name) }

// rateOf is the median of the peer.
func rateOf(slots []slot, v *verdict) string {
	if v.peer == "" {
		return "-"
	}
	m := v.metric
	return fmt.Sprintf("%.1f %s", newSpread(series(slots, v.cells[0], v.peer, m)).median/m.scale, m.unit)
}

// costRatio is the processor time of the peer over ours: it changes less than rates
// do on a machine that others use too.
func costRatio(slots []slot, v *verdict) string {
	if v.peer == "" {
		return "-"
	}
	r := ratios(slots, v.cells[0], v.peer, v.engine, cpuPerOp)
	return fmt.Sprintf("%.2fx", r.median)
}

// printUnjudged names the goals that nothing is said of, so that nobody takes a
// missing row for a reached goal.
func printUnjudged(w io.Writer, slots []slot) error {
	var lines []string
	for i := range goals {
		g := &goals[i]
		_, four := g.judge(slots, ours4)
		_, other := g.judge(slots, ours)
		if !four && !other {
			lines = append(lines, "NOT MEASURED: "+g.row+"\n")
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
