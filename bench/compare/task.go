package main

import (
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/internal/workload"
)

// shape is a way of reading that is measured.
type shape string

const (
	shapeForward  shape = "forward"  // one scan of everything
	shapeBackward shape = "backward" // the same from the end
	shapeShort    shape = "short"    // scans of shortEntries from random keys on
)

// shortEntries is the length of a short scan: a page of results.
const shortEntries = 50

// task is a unit of work for a worker: a run, or else scans. Equal tasks make equal
// requests.
type task struct {
	Run   *workload.Config `json:"run,omitempty"`
	Pulse bool             `json:"pulse,omitempty"` // see runner
	Shape shape            `json:"shape"`
	Scans int              `json:"scans"` // of shapeShort
	Seed  uint64           `json:"seed"`  // of shapeShort
}

// result is the result of a task.
type result struct {
	Elapsed time.Duration `json:"elapsed"`
	CPU     time.Duration `json:"cpu"` // of all threads, user and system
	Entries int           `json:"entries"`
	Memory  memoryUse     `json:"memory"`
	Run     *outcome      `json:"run,omitempty"`
}

// scannable is what a scan needs of a store.
type scannable interface {
	Forward(from []byte, visit peers.Visit) error
	Backward(visit peers.Visit) error
}

// perform runs a task and checks every answer.
func perform(s scannable, d dataset, t task) (result, error) {
	debug.FreeOSMemory() // do not charge this task for the garbage of others
	memory, cpu, begin := memoryNow(), process.OwnCPU(), time.Now()
	entries, err := scan(s, d, t)
	return result{
		Elapsed: time.Since(begin),
		CPU:     process.OwnCPU() - cpu,
		Entries: entries,
		Memory:  memory.watched(),
	}, err
}

func scan(s scannable, d dataset, t task) (entries int, err error) {
	switch t.Shape {
	case shapeForward:
		return d.whole(func(visit peers.Visit) error { return s.Forward(nil, visit) }, 0, +1)
	case shapeBackward:
		return d.whole(s.Backward, d.Keys-1, -1)
	case shapeShort:
		return d.short(s, t)
	}
	return 0, fmt.Errorf("no task has the shape %q", t.Shape)
}

// whole walks to the end.
func (d dataset) whole(scan func(peers.Visit) error, first, step int) (entries int, err error) {
	entries, err = d.walk(scan, first, step, d.Keys+1)
	if err == nil && entries != d.Keys {
		err = fmt.Errorf("wrong answer: the scan saw %d entries of %d", entries, d.Keys)
	}
	return entries, err
}

// short makes many short scans.
func (d dataset) short(s scannable, t task) (entries int, err error) {
	random := rand.New(rand.NewPCG(t.Seed, 0))
	var from [keyBytes]byte
	scan := func(visit peers.Visit) error { return s.Forward(from[:], visit) }
	for range t.Scans {
		first := random.IntN(d.Keys)
		putKey(from[:], first)
		n, err := d.walk(scan, first, +1, shortEntries)
		if want := min(shortEntries, d.Keys-first); err == nil && n != want {
			err = fmt.Errorf("wrong answer: a scan from %q saw %d entries, want %d", from, n, want)
		}
		if err != nil {
			return entries, err
		}
		entries += n
	}
	return entries, nil
}
