package report

import (
	"fmt"
	"io"

	"github.com/kvd-db/kvd/internal/report"
)

// PrintPage prints the tables of a page below the titles of their sections, and its lead.
func PrintPage(w io.Writer, p *report.Page) error {
	for i := range p.Sections {
		s := &p.Sections[i]
		if _, err := fmt.Fprintf(w, "%s\n\n", s.Title); err != nil {
			return err
		}
		for _, t := range s.Tables {
			if err := t.WriteText(w); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintln(w, p.Lead)
	return err
}
