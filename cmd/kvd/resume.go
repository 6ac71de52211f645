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

	name string // of the file; empty: none
}

// loadResume reads the file, which may not exist yet. It fails if the file is about another
// source.
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
	return s, nil
}

// save replaces the file if the number of lines has changed.
func (s *resumeState) save(lines int64) error {
	if s.name == "" || lines == s.Lines {
		return nil
	}
	data, err := json.Marshal(&resumeState{Source: s.Source, Lines: lines})
	if err == nil {
		err = vfs.Replace(vfs.OS, s.name, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record the progress of the import: %w", err)
	}
	s.Lines = lines
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
				_ = s.save(done.reached())
			case <-k.stop:
				return
			}
		}
	})
	return k
}

func (k *saver) close() error {
	close(k.stop)
	k.ended.Wait()
	return k.state.save(k.done.reached())
}

// watermark counts how many leading lines are done while lines finish in any order. Safe
// for concurrent use.
type watermark struct {
	mu    sync.Mutex
	low   int64              // every line up to here is done
	ahead map[int64]struct{} // done, while an earlier line is not; bounded by --in-flight
}

func newWatermark(low int64) *watermark {
	return &watermark{low: low, ahead: make(map[int64]struct{})}
}

// finish marks a line as done. It is called once for each line.
func (w *watermark) finish(line int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead[line] = struct{}{}
	for {
		if _, ok := w.ahead[w.low+1]; !ok {
			return
		}
		w.low++
		delete(w.ahead, w.low)
	}
}

// reached returns the number of leading lines that are done.
func (w *watermark) reached() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.low
}
