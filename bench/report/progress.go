// Package report has what every comparison prints: where it took place, and a line
// for whoever waits.
package report

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Progress is a line for whoever waits. Where nobody looks on only what is worth
// keeping is written.
type Progress struct {
	w    io.Writer
	live bool
}

// NewProgress writes to w, which is live if it is a terminal.
func NewProgress(w io.Writer) *Progress {
	f, ok := w.(*os.File)
	return &Progress{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

const eraseLine = "\r\x1b[K"

// Show replaces what was shown.
func (p *Progress) Show(format string, args ...any) {
	if p.live {
		_, _ = fmt.Fprintf(p.w, eraseLine+format, args...) // a lost line harms nothing
	}
}

// Line leaves a line behind.
func (p *Progress) Line(format string, args ...any) {
	if p.live {
		format = eraseLine + format
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}
