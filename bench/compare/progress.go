package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// progress is a line for whoever waits. Where nobody looks on only what is worth
// keeping is written.
type progress struct {
	w    io.Writer
	live bool
}

func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	return &progress{w: w, live: ok && term.IsTerminal(int(f.Fd()))}
}

const eraseLine = "\r\x1b[K"

// show replaces what was shown.
func (p *progress) show(format string, args ...any) {
	if p.live {
		_, _ = fmt.Fprintf(p.w, eraseLine+format, args...) // a lost line harms nothing
	}
}

// line leaves a line behind.
func (p *progress) line(format string, args ...any) {
	if p.live {
		format = eraseLine + format
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}
