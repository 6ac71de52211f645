package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// inflight bounds the bytes of writes of one kind that are in progress: of batches over
// several partitions, which bypass the inboxes, from before their record is encoded until
// every memtable has its share; and of calls with large writes, from admission to answer.
// A write that does not fit waits in line, so that small batches never overtake a large
// one; a batch larger than the bound is admitted alone.
//
// It is taken before the appendMu of any partition, and that of large calls before that of
// batches. A goroutine that releases bytes never waits for it.
type inflight struct {
	limit  int64
	reason string // of the *kv.OverloadError after patience

	mu struct {
		sync.Mutex
		used int64
		line []*place
	}
}

// place is the place of one write in line.
type place struct {
	bytes    int64
	admitted chan struct{} // closed when the write has left the line and may proceed
}

func newInflight(limit int64, reason string) *inflight {
	return &inflight{limit: limit, reason: reason}
}

// take waits until the bytes fit, at most until ctx ends or for patience. On an error it
// has taken nothing.
func (f *inflight) take(ctx context.Context, bytes int64) error {
	p := f.enter(bytes)
	if p == nil {
		return nil
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	var err error
	select {
	case <-p.admitted:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.C:
		err = &kv.OverloadError{Reason: f.reason, RetryAfter: patience}
	}
	f.leave(p)
	return err
}

// enter takes the bytes and returns nil if they fit, or returns a place in line.
func (f *inflight) enter(bytes int64) *place {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.line) == 0 && f.fitsLocked(bytes) {
		f.mu.used += bytes
		return nil
	}
	p := &place{bytes: bytes, admitted: make(chan struct{})}
	f.mu.line = append(f.mu.line, p)
	return p
}

// leave gives up a place in line, or the bytes if the place was admitted meanwhile.
func (f *inflight) leave(p *place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.mu.line, p); i >= 0 {
		f.mu.line = slices.Delete(f.mu.line, i, i+1)
	} else {
		f.mu.used -= p.bytes
	}
	f.admitLocked()
}

// release gives back bytes that were taken.
func (f *inflight) release(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.used -= bytes
	f.admitLocked()
}

// admitLocked admits from the head of the line as long as the bytes fit.
func (f *inflight) admitLocked() {
	for len(f.mu.line) > 0 && f.fitsLocked(f.mu.line[0].bytes) {
		f.mu.used += f.mu.line[0].bytes
		close(f.mu.line[0].admitted)
		f.mu.line = slices.Delete(f.mu.line, 0, 1)
	}
}

func (f *inflight) fitsLocked(bytes int64) bool { return f.mu.used == 0 || f.mu.used+bytes <= f.limit }
