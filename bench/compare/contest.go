package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/workload"
)

// contest is a list of cells in which engines compete, each on a store of its own.
type contest struct {
	name    string
	engines []string
	cells   []cell
	rounds  int
	setup   setup // without the engine and the directory
	// loadBytes is the memory with which stores are loaded, before they are opened again
	// with that of the setup; 0: they are not opened again.
	loadBytes int64
	// fresh gives every slot a new store and a new process; otherwise an engine keeps
	// both from slot to slot and from cell to cell.
	fresh bool
	// disk: measure the rate of the disk before and after each slot.
	disk bool
	// pulse: count the operations during compactions.
	pulse bool
	// byRound measures all cells in each round, so that ratios of cells can be taken;
	// otherwise all rounds of a cell follow one another.
	byRound bool
}

// cell is what one figure is measured with: a run, a trial, a mix with scans, or the load
// of the setup's data if there is none of these.
type cell struct {
	name  string
	run   *workload.Config
	trial *trial
	mix   *scanMix
	// cold: nothing is in the page cache.
	cold bool
}

// slot is the result of one engine in a cell in one round.
type slot struct {
	Cell   string `json:"cell"`
	Engine string `json:"engine"`
	Round  int    `json:"round"`
	Budget int64  `json:"budgetBytes"` // of memtables and caches
	Heap   int64  `json:"heapBytes"`   // soft limit of the process; 0: none
	// DiskRate is the mean of the rates of one sequential writer immediately before and
	// after the slot, in bytes a second; zero if the contest does not measure it.
	DiskRate float64 `json:"diskBytesPerSecond,omitempty"`
	Run      outcome `json:"run"`
}

// arena runs contests.
type arena struct {
	dir      string // temporary; the caller removes it
	profiles string // directory for CPU profiles, or empty
	progress *report.Progress
	report   func(slot) error // called after each slot
}

// hold runs the engines alternately and returns the results. All slots of a round of a
// cell follow one another, in a different order in each round, so that a ratio compares
// what was measured seconds apart.
func (a *arena) hold(ctx context.Context, c *contest) (slots []slot, err error) {
	processes := make(map[string]*engineWorker)
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, a.dismiss(p))
		}
	}()
	if !c.fresh {
		for _, name := range c.engines {
			p, err := a.call(ctx, c, name)
			if err != nil {
				return nil, err
			}
			processes[name] = p
		}
	}
	for n := range len(c.cells) * c.rounds {
		cell, round := c.cells[n/c.rounds], n%c.rounds
		if c.byRound {
			cell, round = c.cells[n%len(c.cells)], n/len(c.cells)
		}
		for i := range c.engines {
			name := c.engines[(i+round)%len(c.engines)]
			s, err := a.slot(ctx, c, cell, round, name, processes[name])
			if err != nil {
				return nil, err
			}
			if err := a.report(s); err != nil {
				return nil, err
			}
			slots = append(slots, s)
		}
		if round == c.rounds-1 {
			a.progress.Line("%s: %d rounds measured", cell.name, c.rounds)
		}
	}
	return slots, nil
}

// slot measures one engine once. p is its process, or nil if it needs a new one.
func (a *arena) slot(ctx context.Context, c *contest, cell cell, round int, name string, p *engineWorker) (s slot, err error) {
	s = slot{Cell: cell.name, Engine: name, Round: round, Budget: c.setup.Store.MemoryBytes, Heap: c.setup.HeapBytes}
	if p == nil {
		if p, err = a.call(ctx, c, name); err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, a.dismiss(p)) }()
	}
	what := fmt.Sprintf("%s: round %d of %d, %s", cell.name, round+1, c.rounds, name)
	a.progress.Show("%s", what)
	if cell.run == nil && cell.trial == nil && cell.mix == nil {
		s.Run = loadOutcome(&p.ready, c.setup.Data)
		return s, nil
	}
	if c.disk {
		if s.DiskRate, err = a.measureDisk(cell.name); err != nil {
			return s, err
		}
	}
	if err := p.Thaw(); err != nil {
		return s, err
	}
	t := cell.task(c, round)
	begin := time.Now()
	perform := func() error {
		r, err := p.doWatched(t, func(opsPerSecond float64) {
			a.progress.Show("%s: %.0f s, %.0f ops/s", what, time.Since(begin).Seconds(), opsPerSecond)
		})
		if err == nil {
			s.Run = *r.Run
		}
		return err
	}
	if cell.cold {
		err = whileCold(a.dirOf(name), perform)
	} else {
		err = perform()
	}
	if err != nil {
		return s, err
	}
	if err := p.Freeze(); err != nil {
		return s, err
	}
	if c.disk {
		after, err := a.measureDisk(cell.name)
		s.DiskRate = (s.DiskRate + after) / 2
		return s, err
	}
	return s, nil
}

// task returns the work of a cell in a round.
func (c *cell) task(of *contest, round int) task {
	if c.trial != nil {
		return task{Trial: c.trial} // each trial on the same records has other keys
	}
	if c.mix != nil {
		return task{Mix: &scanMix{c.mix.Span, c.mix.Seed + uint64(round)}}
	}
	cfg := *c.run
	cfg.Seed += uint64(round)
	return task{Run: &cfg, Pulse: of.pulse}
}

// dirOf is the directory of an engine's store.
func (a *arena) dirOf(engine string) string { return filepath.Join(a.dir, engine) }

func (a *arena) measureDisk(cell string) (rate float64, err error) {
	a.progress.Show("%s: the disk alone", cell)
	return diskRate(a.dir, diskRateBytes)
}

// call starts the process of an engine, and freezes it when it is ready.
func (a *arena) call(ctx context.Context, c *contest, name string) (*engineWorker, error) {
	if err := disk.Enough(a.dir, 0); err != nil {
		return nil, err
	}
	s := c.setup
	s.Engine = name
	s.Store.Dir = a.dirOf(name)
	if err := os.Mkdir(s.Store.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.loadBytes > 0 {
		first := s
		first.Store.MemoryBytes, first.HeapBytes = c.loadBytes, 0
		if err := errors.Join(a.opened(ctx, first, func(*engineWorker) error { return nil }), disk.Sync(a.dir)); err != nil {
			return nil, err
		}
		s.Again = true
	}
	profile := ""
	if a.profiles != "" {
		profile = filepath.Join(a.profiles, name+".prof")
	}
	p, err := startEngine(ctx, s, profile)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	err = p.waitReady(func(entries int) {
		a.progress.Show("%s: %s loads, %d of %d entries, %.0f s", c.name, name, entries, s.entries(), time.Since(begin).Seconds())
	})
	if err == nil && s.entries() > 0 && !s.Again {
		a.progress.Line("%s: %s loaded %d entries in %.1f s and settled in %.1f s",
			c.name, name, s.entries(), p.ready.Load.Seconds(), p.ready.Settle.Seconds())
		err = disk.Sync(a.dir)
	}
	if err == nil {
		err = p.Freeze()
	}
	if err == nil && s.entries() > 0 && !c.fresh {
		err = readFiles(s.Store.Dir) // which do not change any more
	}
	if err != nil {
		return nil, errors.Join(err, p.Thaw(), p.Close())
	}
	return p, nil
}

// dismiss ends a process and removes its store.
func (a *arena) dismiss(p *engineWorker) error {
	return errors.Join(p.Thaw(), p.Close(), os.RemoveAll(a.dirOf(p.name)))
}

// loadOutcome returns the result of a load in the form of a run.
func loadOutcome(l *loaded, d dataset) outcome {
	ops := uint64(d.Keys)
	return outcome{
		Summary: workload.Summary{
			Ops:            ops,
			Seconds:        l.Load.Seconds(),
			OpsPerSecond:   float64(ops) / l.Load.Seconds(),
			CPUMicrosPerOp: float64(l.CPU.Microseconds()) / float64(ops),
		},
		UserBytes:  int64(d.Keys) * int64(keyBytes+d.ValueBytes),
		Written:    l.Written,
		SettleTime: l.Settle,
		Memory:     l.Memory,
	}
}

// heapShare sets the garbage collector's soft limit above the budget of the process: by
// an eighth, for everything except memtables and cache. The process must stay within a
// quarter.
const heapShare = 8

func newSetup(memoryMiB int64, sync bool) setup {
	memory := memoryMiB << 20
	return setup{
		Store:     peers.Options{MemoryBytes: memory, Sync: sync},
		HeapBytes: memory + memory/heapShare,
	}
}
