package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/vfs"
)

// resumeState is the progress of an import, as stored in the file of --resume.
type resumeState struct {
	Source string `json:"source"`
	Lines  int64  `json:"lines"` // this many from the start are durable
	// Checksum is the checksum of those lines, as text; empty in a file of an older version.
	Checksum string `json:"checksum,omitempty"`
	// Complete: the import has ended without an error.
	Complete bool `json:"complete,omitempty"`

	name string // of the file; empty: none
}

// loadResume reads the file, which may not exist yet. It fails if the file is about another
// source, or about a complete import: what its source has now may be other input, such as another
// standard input.
func loadResume(name, source string) (*resumeState, error) {
	s := &resumeState{Source: source, name: name}
	if name == "" {
		return s, nil
	}
	data, err := os.ReadFile(name) // #nosec G304 -- the operator names the file
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, s); err != nil || s.Lines < 0 {
		return nil, usagef("%s was not written by --resume; remove it to start from the beginning", name)
	}
	if s.Source != source {
		return nil, usagef("%s is about an import of %s, not of %s", name, s.Source, source)
	}
	if s.Complete {
		return nil, usagef("%s says that the import of %s is complete; remove it, or name another file, to import again", name, source)
	}
	return s, nil
}

// check fails unless sum is the checksum of the lines that the file counts.
func (s *resumeState) check(sum uint64) error {
	if s.Checksum == "" || s.Checksum == checksumText(sum) {
		return nil
	}
	return s.otherInput("begins with other lines")
}

// otherInput is the error of an input that is not the one whose import the file records.
func (s *resumeState) otherInput(what string) error {
	return usagef("the input %s: it is not the one of which %s records %d lines; remove that file, or name another, to import from the beginning", what, s.name, s.Lines)
}

func checksumText(sum uint64) string { return fmt.Sprintf("%016x", sum) }

// save replaces the file if the number of lines has changed, or the import is complete.
func (s *resumeState) save(p position, complete bool) error {
	if s.name == "" || p.lines == s.Lines && !complete {
		return nil
	}
	data, err := json.Marshal(&resumeState{Source: s.Source, Lines: p.lines, Checksum: checksumText(p.sum), Complete: complete})
	if err == nil {
		err = vfs.Replace(vfs.OS, s.name, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record the progress of the import: %w", err)
	}
	s.Lines = p.lines
	return nil
}

// saver updates the file every second and at the end.
type saver struct {
	state *resumeState
	done  *watermark
	stop  chan struct{}
	ended sync.WaitGroup
}

func (s *resumeState) keep(done *watermark) *saver {
	k := &saver{state: s, done: done, stop: make(chan struct{})}
	k.ended.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				// close meets the same error and reports it.
				_ = s.save(done.reached(), false)
			case <-k.stop:
				return
			}
		}
	})
	return k
}

func (k *saver) close(complete bool) error {
	close(k.stop)
	k.ended.Wait()
	return k.state.save(k.done.reached(), complete)
}

// position is a number of leading lines, and their checksum.
type position struct {
	lines int64
	sum   uint64
}

// watermark counts how many leading lines are done while lines finish in any order. Safe
// for concurrent use.
type watermark struct {
	mu    sync.Mutex
	low   position         // every line up to here is done
	ahead map[int64]uint64 // checksums up to lines that are done, while an earlier line is not; bounded by --in-flight
}

func newWatermark(low int64) *watermark {
	return &watermark{low: position{lines: low}, ahead: make(map[int64]uint64)}
}

// begin sets the checksum of the lines that an earlier import has completed, before the first
// finish.
func (w *watermark) begin(sum uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.low.sum = sum
}

// finish marks the last line of p as done. It is called once for each line.
func (w *watermark) finish(p position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead[p.lines] = p.sum
	for {
		sum, ok := w.ahead[w.low.lines+1]
		if !ok {
			return
		}
		w.low = position{lines: w.low.lines + 1, sum: sum}
		delete(w.ahead, w.low.lines)
	}
}

// reached returns the leading lines that are done.
func (w *watermark) reached() position {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.low
}
