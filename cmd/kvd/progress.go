package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// progress shows the progress of a long command: a bar on a terminal, a line every two
// seconds otherwise.
type progress struct {
	out   io.Writer
	what  string // the items: "lines", "keys"
	bar   bool
	begin time.Time

	done  atomic.Int64
	total atomic.Int64 // of done, in the same unit; 0: not known
	items atomic.Int64

	stop     chan struct{}
	finished sync.WaitGroup
}

const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 2 * time.Second
	barWidth  = 30
)

// startProgress starts to show progress on w, until close.
func startProgress(w io.Writer, what string, total int64) *progress {
	p := &progress{out: w, what: what, bar: isTerminal(w), begin: time.Now(), stop: make(chan struct{})}
	p.total.Store(total)
	every := lineEvery
	if p.bar {
		every = barEvery
	}
	p.finished.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.show(time.Since(p.begin))
			case <-p.stop:
				return
			}
		}
	})
	return p
}

// close ends the display, and clears the bar on a terminal.
func (p *progress) close() {
	close(p.stop)
	p.finished.Wait()
	if p.bar {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func (p *progress) show(elapsed time.Duration) {
	text := p.text(elapsed)
	if p.bar {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(p.out, text)
	}
}

// text returns how much is done, how fast, and the estimated time left.
func (p *progress) text(elapsed time.Duration) string {
	items, done, total := p.items.Load(), p.done.Load(), p.total.Load()
	var b strings.Builder
	if total > 0 {
		part := min(float64(done)/float64(total), 1)
		if p.bar {
			full := int(part * barWidth)
			fmt.Fprintf(&b, "[%s%s] ", strings.Repeat("#", full), strings.Repeat(".", barWidth-full))
		}
		fmt.Fprintf(&b, "%.0f%%  ", part*100)
	}
	rate := float64(items) / max(elapsed.Seconds(), 1e-9)
	if p.what == "bytes" {
		fmt.Fprintf(&b, "%s  %s/s", humanBytes(items), humanBytes(int64(rate)))
	} else {
		fmt.Fprintf(&b, "%d %s  %.0f/s", items, p.what, rate)
	}
	if total > 0 && done > 0 && done < total {
		left := time.Duration(float64(elapsed) / float64(done) * float64(total-done))
		fmt.Fprintf(&b, "  %v left", left.Round(time.Second))
	}
	return b.String()
}
