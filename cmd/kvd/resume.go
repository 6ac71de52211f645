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

// resumeState is how far an import has come, as the file of --resume keeps it.
type resumeState struct {
	Source string `json:"source"`
	Lines  int64  `json:"lines"` // so many from the start are durable

	name string // of the file; empty: nothing is kept
}

// loadResume reads the file, which may not be there yet.
//
// Errors: also for a file that speaks of another source.
func loadResume(name, source string) (*resumeState, error) {
	s := &resumeState{Source: source, name: name}
	if name == "" {
		return s, nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, s); err != nil || s.Lines < 0 {
		return nil, usagef("%s is no file that --resume wrote; remove it to begin anew", name)
	}
	if s.Source != source {
		return nil, usagef("%s is about an import of %s, not of %s", name, s.Source, source)
	}
	return s, nil
}

// save replaces the file, if there is something new to say.
func (s *resumeState) save(lines int64) error {
	if s.name == "" || lines == s.Lines {
		return nil
	}
	data, err := json.Marshal(&resumeState{Source: s.Source, Lines: lines})
	if err == nil {
		err = vfs.WriteAtomic(vfs.OS, s.name, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("remember how far the import is: %w", err)
	}
	s.Lines = lines
	return nil
}

// saver keeps the file up to date, every second and at the end.
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
				// An error is found again, and reported, by close.
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

// watermark knows how many leading lines are done when lines end in any order.
// Safe for concurrent use.
type watermark struct {
	mu    sync.Mutex
	low   int64              // every line up to here is done
	ahead map[int64]struct{} // done, but not next in line; bounded by what is in flight
}

func newWatermark(low int64) *watermark {
	return &watermark{low: low, ahead: make(map[int64]struct{})}
}

// finish says that a line is done. Each is said once.
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

// reached returns how many leading lines are done.
func (w *watermark) reached() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.low
}
