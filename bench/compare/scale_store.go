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
	"github.com/kvd-db/kvd/internal/workload"
)

// scaleResult is the result of one store.
type scaleResult struct {
	Case    scaleCase `json:"case"`
	Load    loaded    `json:"load"`
	Get     outcome   `json:"get"` // of the settled store, as are the following fields up to Put
	Absent  outcome   `json:"absent"`
	Scan    result    `json:"scan"`
	Cold    loaded    `json:"cold"` // opened with little memory and nothing in the page cache
	ColdGet outcome   `json:"coldGet"`
	Put     outcome   `json:"put"`
	After   loaded    `json:"after"` // opened once more, after the puts
}

// scaleSpace bounds the disk space for a byte of entries: what compactions write before
// they remove their inputs, and the log. Twice the maximum that was measured with five
// million keys.
const scaleSpace = 3

// scaleStore measures one store from its load to its removal.
func (a *arena) scaleStore(ctx context.Context, o *scaleOptions, c scaleCase) (r scaleResult, err error) {
	r.Case = c
	if err := disk.Enough(a.dir, scaleSpace*int64(c.Keys)*int64(keyBytes+o.valueBytes)); err != nil {
		return r, err
	}
	data := o.data(c)
	s := setup{
		Engine: withPartitions(c.Partitions), Data: data,
		Store: peers.Options{Dir: filepath.Join(a.dir, "scale"), MemoryBytes: o.memory << 20},
	}
	if err := os.Mkdir(s.Store.Dir, 0o700); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.Store.Dir)) }()

	err = a.opened(ctx, s, func(p *engineWorker) error {
		r.Load = p.ready
		a.progress.Show("all files into the page cache")
		if err := errors.Join(disk.Sync(a.dir), readFiles(s.Store.Dir)); err != nil {
			return err
		}
		if r.Get, err = a.scaleRun(p, "gets", o.gets(c, 1)); err != nil {
			return err
		}
		if r.Absent, err = a.scaleRun(p, "gets of absent keys", o.gets(c, 0)); err != nil {
			return err
		}
		a.progress.Show("scan of everything")
		r.Scan, err = p.do(task{Shape: shapeForward})
		return err
	})
	if err != nil {
		return r, err
	}
	a.progress.Line("  %.0f k gets/s, %.0f k absent/s, %.1f M entries/s scanned",
		r.Get.Summary.OpsPerSecond/1e3, r.Absent.Summary.OpsPerSecond/1e3, float64(r.Scan.Entries)/r.Scan.Elapsed.Seconds()/1e6)

	s.Again = true
	small := s
	small.Store.MemoryBytes = o.small << 20
	if err := errors.Join(disk.Sync(a.dir), forgetFiles(s.Store.Dir)); err != nil {
		return r, err
	}
	err = a.opened(ctx, small, func(p *engineWorker) error {
		r.Cold = p.ready
		r.ColdGet, err = a.scaleRun(p, "gets with little memory", o.coldGets(c))
		return err
	})
	if err != nil {
		return r, err
	}
	a.progress.Line("  opened in %v; with little memory %.0f k gets/s", r.Cold.Open.Round(time.Millisecond), r.ColdGet.Summary.OpsPerSecond/1e3)

	err = a.opened(ctx, s, func(p *engineWorker) error {
		r.Put, err = a.scaleRun(p, "puts", o.puts(c))
		return err
	})
	if err != nil {
		return r, err
	}
	err = a.opened(ctx, s, func(p *engineWorker) error {
		r.After = p.ready
		return nil
	})
	a.progress.Line("  %.0f k puts/s; opened in %v", r.Put.Summary.OpsPerSecond/1e3, r.After.Open.Round(time.Millisecond))
	return r, err
}

// opened calls use with a worker that has a store open.
func (a *arena) opened(ctx context.Context, s setup, use func(*engineWorker) error) (err error) {
	p, err := startEngine(ctx, s, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	begin := time.Now()
	err = p.waitReady(func(entries int) {
		what := "loads"
		if entries == s.Data.Keys {
			what = "settles"
		}
		a.progress.Show("%s %s, %d of %d entries, %.0f s", p.name, what, entries, s.Data.Keys, time.Since(begin).Seconds())
	})
	if err != nil {
		return err
	}
	if !s.Again {
		a.progress.Line("  %s loaded in %.1f s, settled in %.1f s", p.name, p.ready.Load.Seconds(), p.ready.Settle.Seconds())
	}
	return use(p)
}

// scaleRun runs operations and reports progress.
func (a *arena) scaleRun(p *engineWorker, what string, cfg workload.Config) (outcome, error) {
	begin := time.Now()
	r, err := p.doWatched(task{Run: &cfg}, func(opsPerSecond float64) {
		a.progress.Show("%s %s: %.0f s, %.0f ops/s", p.name, what, time.Since(begin).Seconds(), opsPerSecond)
	})
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", what, err)
	}
	r.Run.Seconds = nil // a file of results is long enough without
	return *r.Run, nil
}
