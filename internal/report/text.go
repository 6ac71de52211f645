package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the table for a terminal.
func (t *Table) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := fmt.Fprintln(tw, strings.Join(t.Head, "\t")+"\t"); err != nil {
		return err
	}
	for _, row := range t.Rows {
		for _, e := range row {
			if _, err := fmt.Fprint(tw, e.Text+"\t"); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintln(tw); err != nil {
			return err
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n\n", t.Caption)
	return err
}
