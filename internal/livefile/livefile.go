// Package livefile keeps up to date what is made from small files that an operator
// replaces while the process runs: certificates, tokens.
//
// New contents are found by polling, and at once by [Watcher.Reload], which is for SIGHUP.
// Polling compares contents, not times: a file that is replaced within the resolution of
// its time, or reached by another symbolic link, is noticed too. Contents that cannot be
// used leave what is in use as it is, and are reported once.
package livefile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// PollEvery is the time between two looks at the files.
	PollEvery = 2 * time.Second
	// maxBytes bounds a file. Guessed: far above the certificates of many authorities, and
	// ten thousand tokens.
	maxBytes = 4 << 20
)

// Files are files that belong together, such as a certificate and its key.
type Files struct {
	FS    vfs.FS
	Names []string
	// Use takes contents in the order of Names, or returns why they cannot be used. It is
	// called by one goroutine at a time, and owns them.
	Use func(contents [][]byte) error
	// Report is told when new contents are in use (nil), or why they are not.
	Report func(err error)
}

// Watcher keeps what is made from files up to date.
type Watcher struct {
	files    Files
	failures atomic.Uint64
	failing  atomic.Bool

	mu      sync.Mutex // held during a look
	used    [][]byte
	refused [][]byte // the newest contents that cannot be used; nil: those in use are the newest
	told    string   // the error that was reported last; empty: none since contents were used
}

// Open uses the files as they are.
func Open(files Files) (*Watcher, error) {
	w := &Watcher{files: files}
	contents, err := w.read()
	if err == nil {
		err = files.Use(contents)
	}
	if err != nil {
		return nil, err
	}
	w.used = contents
	return w, nil
}

// Run polls until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(PollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look(false)
		}
	}
}

// Reload looks at the files now, and reports what is wrong with them even if it was reported.
func (w *Watcher) Reload() { w.look(true) }

// Failing reports whether older contents are in use because the newest ones cannot be used, as was
// reported. It does not wait for a look that is under way.
func (w *Watcher) Failing() bool { return w.failing.Load() }

// Failures counts new contents that could not be used, and looks that found no readable file.
func (w *Watcher) Failures() uint64 { return w.failures.Load() }

func (w *Watcher) read() (contents [][]byte, err error) {
	for _, name := range w.files.Names {
		one, err := vfs.ReadSmall(w.files.FS, name, maxBytes)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		contents = append(contents, one)
	}
	return contents, nil
}

// look uses new contents. If several files are replaced one after the other, a look may
// find a new one beside an old one. So contents that cannot be used are reported only by
// the second look that finds them, unless asked.
func (w *Watcher) look(asked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	contents, err := w.read()
	switch {
	case err != nil:
		w.refuse(contents, err, asked)
	case same(contents, w.used):
		w.refused, w.told = nil, ""
		w.failing.Store(false)
	default:
		if err := w.files.Use(contents); err != nil {
			w.refuse(contents, err, asked)
			return
		}
		w.used, w.refused, w.told = contents, nil, ""
		w.failing.Store(false)
		w.files.Report(nil)
	}
}

func (w *Watcher) refuse(contents [][]byte, err error, asked bool) {
	again := w.refused != nil && same(contents, w.refused)
	w.refused = contents
	if w.refused == nil {
		w.refused = [][]byte{}
	}
	if asked || again && w.told != err.Error() {
		w.told = err.Error()
		w.failures.Add(1)
		w.failing.Store(true)
		w.files.Report(err)
	}
}

func same(a, b [][]byte) bool {
	return slices.EqualFunc(a, b, func(a, b []byte) bool { return string(a) == string(b) })
}
