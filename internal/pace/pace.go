// Package pace bounds how fast background work reads files, so that requests find the disk
// idle: backups, scrubs, comparisons, and files that are sent to another node or received from
// one.
//
// All of it uses one kind of bound, a Bucket. In any time t, the work of a Bucket with a rate
// of r bytes per second takes at most
//
//	r × (t + 2 × burst) bytes, and one read of each of its goroutines.
//
// burst is 20 ms: 1.3 MiB at 64 MiB per second. What the work could not read while it was held
// up, by the network or by a busy machine, it never makes up for.
package pace

import (
	"context"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

// DefaultRate is the rate of scrubs that are asked for without saying a rate. Guessed: a tenth of what a
// disk reads.
const DefaultRate = 64 << 20

// BackupRate is the rate of a backup for which the client says none, and of files for another node
// unless the server is told another. With client, server and backup on two processors, beside a backup at
// 24 MiB the p99 of gets was 1.5 times as long (bench/NOTES.md).
const BackupRate = 16 << 20

// burst is the longest time for which unused tokens are kept, and the longest rest that is left
// out, to be added to the next one. Guessed: longer than the accuracy of timers.
const burst = 20 * time.Millisecond

// Bucket is a token bucket: it bounds the bytes that some work takes per second. Safe for
// concurrent use.
type Bucket struct {
	rate int64
	rest func() int

	mu      sync.Mutex
	due     time.Time // when the tokens taken so far are there
	resumed time.Time // when the work began, or went on after its last rest
}

// New returns a bucket for bytes per second; 0 means no bound.
func New(rate int64) *Bucket { return NewResting(rate, func() int { return 0 }) }

// NewResting returns a bucket that also bounds the share of the time that its work, which is
// that of one goroutine, takes: it rests rest() times as long as it works.
func NewResting(rate int64, rest func() int) *Bucket {
	now := time.Now()
	return &Bucket{rate: rate, rest: rest, due: now, resumed: now}
}

// Take takes tokens for bytes that were read, and waits until they are there.
//
// Errors: the cause of ctx.
func (b *Bucket) Take(ctx context.Context, bytes int64) error {
	wait := b.Owe(bytes)
	if wait < burst {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resumed = time.Now()
	return context.Cause(ctx)
}

// Owe takes tokens for bytes that were read and does not wait for them: the next Take does. It
// returns for how long.
func (b *Bucket) Owe(bytes int64) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if earliest := now.Add(-burst); b.due.Before(earliest) {
		b.due = earliest
	}
	if b.rate > 0 {
		b.due = b.due.Add(time.Duration(float64(bytes) / float64(b.rate) * float64(time.Second)))
	}
	return max(b.due.Sub(now), time.Duration(b.rest())*now.Sub(b.resumed))
}

// Reads returns fsys, but what is read of a file that it opens for reading is taken from the
// bucket. When ctx has ended, such reads fail with its cause.
func (b *Bucket) Reads(ctx context.Context, fsys vfs.FS) vfs.FS {
	return &pacedFS{FS: fsys, ctx: ctx, bucket: b}
}

type pacedFS struct {
	vfs.FS
	ctx    context.Context
	bucket *Bucket
}

// Open implements vfs.FS.
func (p *pacedFS) Open(name string) (vfs.File, error) {
	f, err := p.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &pacedFile{File: f, of: p}, nil
}

type pacedFile struct {
	vfs.File
	of *pacedFS
}

// ReadAt implements vfs.File.
func (f *pacedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := context.Cause(f.of.ctx); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(p, off)
	if ended := f.of.bucket.Take(f.of.ctx, int64(n)); err == nil {
		err = ended
	}
	return n, err
}
