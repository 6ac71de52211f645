package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
	"github.com/kvd-db/kvd/internal/workload"
)

// shape is a way of reading that is measured.
type shape string

const (
	shapeForward  shape = "forward"          // one scan of everything
	shapeBackward shape = "backward"         // the same from the end
	shapeShort    shape = "short"            // scans of shortEntries from random keys on
	shapePair     shape = "short, 2 threads" // the same by scanThreads threads
)

const scanThreads = 2

func (s shape) isShort() bool { return s == shapeShort || s == shapePair }

// shortEntries is the length of a short scan: a page of results.
const shortEntries = 50

// task is a unit of work for a worker: a run, a trial, a mix with scans, or else scans. Equal tasks make equal
// requests.
type task struct {
	Run   *workload.Config `json:"run,omitempty"`
	Trial *trial           `json:"trial,omitempty"`
	Mix   *scanMix         `json:"mix,omitempty"`
	Pulse bool             `json:"pulse,omitempty"` // see runner
	Shape shape            `json:"shape"`
	Scans int              `json:"scans"` // short ones, of all threads
	Seed  uint64           `json:"seed"`  // likewise
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
func perform(ctx context.Context, s scannable, d dataset, t task) (result, error) {
	debug.FreeOSMemory() // do not charge this task for the garbage of others
	memory, cpu, begin := memoryNow(), process.OwnCPU(), time.Now()
	entries, err := scan(ctx, s, d, t)
	return result{
		Elapsed: time.Since(begin),
		CPU:     process.OwnCPU() - cpu,
		Entries: entries,
		Memory:  memory.watched(),
	}, err
}

func scan(ctx context.Context, s scannable, d dataset, t task) (entries int, err error) {
	switch t.Shape {
	case shapeForward:
		return d.whole(func(visit peers.Visit) error { return s.Forward(nil, visit) }, 0, +1)
	case shapeBackward:
		return d.whole(s.Backward, d.Keys-1, -1)
	case shapeShort:
		return d.short(ctx, s, t, 0)
	case shapePair:
		return d.inParallel(ctx, s, t)
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

// inParallel makes the short scans of a task by several threads.
func (d dataset) inParallel(ctx context.Context, s scannable, t task) (entries int, err error) {
	var counts [scanThreads]int
	var errs [scanThreads]error
	var group sync.WaitGroup
	t.Scans /= scanThreads
	for i := range scanThreads {
		group.Go(func() { counts[i], errs[i] = d.short(ctx, s, t, uint64(i)) })
	}
	group.Wait()
	for _, n := range counts {
		entries += n
	}
	return entries, errors.Join(errs[:]...)
}

// errEnough ends a page that has as many entries as were wanted.
var errEnough = errors.New("enough")

// short makes many short scans. Threads make different ones.
func (d dataset) short(ctx context.Context, s scannable, t task, thread uint64) (entries int, err error) {
	random := rand.New(rand.NewPCG(t.Seed, thread))
	for range t.Scans {
		first := random.IntN(d.Keys)
		if err := d.page(ctx, s, first); err != nil {
			return entries, err
		}
		entries += min(shortEntries, d.Keys-first)
	}
	return entries, nil
}

// page makes one short scan.
func (d dataset) page(ctx context.Context, s peers.Forwarder, first int) error {
	var from [keyBytes]byte
	putKey(from[:], first)
	n, err := d.walk(func(visit peers.Visit) error {
		err := peers.Page(ctx, s, from[:], shortEntries, func(key, value []byte) error {
			if !visit(key, value) {
				return errEnough
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	}, first, +1, shortEntries)
	if want := min(shortEntries, d.Keys-first); err == nil && n != want {
		err = fmt.Errorf("wrong answer: a scan from %q saw %d entries, want %d", from, n, want)
	}
	return err
}
