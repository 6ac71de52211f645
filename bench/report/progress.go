// Package report prints what all comparisons have in common: the environment, and a
// progress line.
package report

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Progress is a progress line on a terminal. If the output is no terminal, only
// permanent lines are written.
type Progress struct {
	w    io.Writer
	live bool
}

// NewProgress returns a Progress that writes to w.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

const eraseLine = "\r\x1b[K"

// Show replaces the progress line.
func (p *Progress) Show(format string, args ...any) {
	if p.live {
		_, _ = fmt.Fprintf(p.w, eraseLine+format, args...) // a lost line harms nothing
	}
}

// Line writes a permanent line.
func (p *Progress) Line(format string, args ...any) {
	if p.live {
		format = eraseLine + format
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}

// Step shows what begins or goes on: as the progress line on a terminal, otherwise as a
// permanent line.
func (p *Progress) Step(format string, args ...any) {
	if p.live {
		p.Show(format, args...)
		return
	}
	p.Line(format, args...)
}
