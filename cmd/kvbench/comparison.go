package main

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
)

// comparison is the result of trials that alternated.
type comparison struct {
	what string
	*loadgen.Comparison
	warnings []string
}

// compared reports the result of a comparison, after its trials.
func (t *trials) compared(label trialLabel, result any) error {
	return t.report.summary(struct {
		trialLabel
		Comparison any `json:"comparison"`
	}{label, result})
}

// printComparisons prints the rates of all rounds, then the median ratio.
func printComparisons(out io.Writer, all []comparison) error {
	var b bytes.Buffer
	for _, c := range all {
		if len(c.Ratios) == 0 {
			fmt.Fprintf(&b, "%s: no round ended.\n\n", c.what)
			continue
		}
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "round\talone/s\tbeside/s\tratio\t")
		for i, ratio := range c.Ratios {
			fmt.Fprintf(t, "%d\t%s\t%s\t%.3f\t\n", i+1, grouped(c.Without[i]), grouped(c.With[i]), ratio)
		}
		_ = t.Flush() // into memory
		for _, w := range c.warnings {
			fmt.Fprintf(&b, "! %s\n", w)
		}
		fmt.Fprintf(&b, "%s: %.1f %% of alone (median of %s).\n\n", c.what, 100*c.MedianRatio, report.Plural(len(c.Ratios), "round"))
	}
	_, err := b.WriteTo(out)
	return err
}
