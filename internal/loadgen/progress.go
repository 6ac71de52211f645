package loadgen

import (
	"context"
	"sync"
	"time"
)

// Progress is how far work is that is not measured, such as loading data.
type Progress struct {
	What    string        `json:"what"` // is done, such as "loading"
	Things  string        `json:"things,omitempty"`
	Done    uint64        `json:"done,omitempty"`  // of the things
	Total   uint64        `json:"total,omitempty"` // 0: how much there is to do is not known
	Elapsed time.Duration `json:"elapsedNanos"`    // since the work began
}

// Left estimates how long the rest takes, at the mean rate until now; false while that is not
// known.
func (p *Progress) Left() (time.Duration, bool) {
	if p.Done == 0 || p.Done > p.Total {
		return 0, false
	}
	return time.Duration(float64(p.Elapsed) / float64(p.Done) * float64(p.Total-p.Done)), true
}

// Counted returns a function that tells the progress of work that begins with its first call,
// for example by [ForEach].
func Counted(what, things string, told func(Progress)) func(done, total uint64) {
	var began time.Time
	return func(done, total uint64) {
		p := Progress{What: what, Things: things, Done: done, Total: total}
		if began.IsZero() {
			began = time.Now()
		} else {
			p.Elapsed = time.Since(began)
		}
		told(p)
	}
}

// Watch calls do, of which it is not known how much there is to do. Every second until do
// returns, it calls told from another goroutine with the time that has passed.
func Watch(what string, told func(Progress), do func() error) error {
	ctx, stop := context.WithCancel(context.Background())
	began := time.Now()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				told(Progress{What: what, Elapsed: time.Since(began)})
			}
		}
	})
	defer watcher.Wait()
	defer stop()
	return do()
}
