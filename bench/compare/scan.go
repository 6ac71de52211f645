package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/report"
)

// scanOptions describe a comparison of scans.
type scanOptions struct {
	data       dataset
	engines    []string
	rounds     int
	shortScans int
	memory     int64 // MiB
	loose      bool  // stores do not settle; only whole scans
	dir        string
	profiles   string
}

func newScanCommand() *cobra.Command {
	var o scanOptions
	c := &cobra.Command{
		Use:   "scan",
		Short: "Compare whole scans, forward and backward, and short scans from random keys",
		Long: `Compare whole scans, forward and backward, and short scans from random keys, by one
thread and by two.

Each engine runs in a process of its own, loads the same entries into a temporary
directory, settles, and scans once without being measured. Then the engines take
turns, round by round; a ratio compares two engines within one round. Every entry
is checked: its key, its place and its value.`,
		Example: `  compare scan --keys 1000000 --value-size 100 --rounds 3
  compare scan --engines kvd,pebble --profile /tmp/profiles`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.IntVar(&o.data.Keys, "keys", 1_000_000, "entries in each store")
	f.IntVar(&o.data.ValueBytes, "value-size", 100, "bytes of a value")
	f.StringVar(&o.data.Order, "load", orderRandom, "order in which entries are loaded: random or sorted")
	f.StringSliceVar(&o.engines, "engines", engineNames(), "engines to compare")
	f.IntVar(&o.rounds, "rounds", 5, "rounds that are measured")
	f.IntVar(&o.shortScans, "short-scans", 20_000, "short scans of each engine in a round")
	f.Int64Var(&o.memory, "memory", 1024, "MiB of memtables and caches of each engine")
	f.BoolVar(&o.loose, "loose", false, "scan the whole stores as they are after the load, without letting them settle")
	f.StringVar(&o.dir, "dir", ".", "where the temporary directory is made")
	f.StringVar(&o.profiles, "profile", "", "existing directory for a CPU profile of each engine, load left out")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return failed(compareScans(c.Context(), &o, c.OutOrStdout(), c.ErrOrStderr()))
	}
	return c
}

// minMemoryMiB is the least memory that every engine runs with.
const minMemoryMiB = 32

func (o *scanOptions) validate() error {
	if err := o.data.validate(); err != nil {
		return err
	}
	for _, name := range o.engines {
		if _, err := findEngine(name); err != nil {
			return err
		}
	}
	switch {
	case len(o.engines) == 0:
		return errors.New("no engines")
	case o.rounds < 1:
		return fmt.Errorf("%d rounds, want at least 1", o.rounds)
	case o.shortScans < 1:
		return fmt.Errorf("%d short scans, want at least 1", o.shortScans)
	case o.memory < minMemoryMiB:
		return fmt.Errorf("%d MiB of memory, want at least %d", o.memory, minMemoryMiB)
	}
	return nil
}

// compareScans loads, measures and prints.
func compareScans(ctx context.Context, o *scanOptions, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp(o.dir, ".bench.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	var processes []*engineWorker
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, p.Thaw(), p.Close())
		}
	}()
	progress := report.NewProgress(stderr)
	for _, name := range o.engines {
		p, err := startLoaded(ctx, o, name, dir, progress)
		if p != nil {
			processes = append(processes, p)
		}
		if err != nil {
			return err
		}
	}
	rounds, err := measureScans(o, processes, progress)
	if err != nil {
		return err
	}
	return printScans(stdout, o, dir, processes, rounds)
}

// startLoaded returns a frozen worker that is ready. The caller must thaw and close it,
// even after an error.
func startLoaded(ctx context.Context, o *scanOptions, name, dir string, progress *report.Progress) (*engineWorker, error) {
	s := setup{
		Engine: name, Data: o.data, Loose: o.loose,
		Store: peers.Options{Dir: filepath.Join(dir, name), MemoryBytes: o.memory << 20},
	}
	if err := os.Mkdir(s.Store.Dir, 0o700); err != nil {
		return nil, err
	}
	profile := ""
	if o.profiles != "" {
		profile = filepath.Join(o.profiles, name+".prof")
	}
	p, err := startEngine(ctx, s, profile)
	if err != nil {
		return nil, err
	}
	err = p.waitReady(func(entries int) {
		what := "loads"
		if entries == o.data.Keys {
			what = "settles"
		}
		progress.Show("%s %s: %d of %d entries", name, what, entries, o.data.Keys)
	})
	if err == nil {
		progress.Line("%s loaded %d entries in %.1f s and settled in %.1f s",
			name, o.data.Keys, p.ready.Load.Seconds(), p.ready.Settle.Seconds())
		err = p.Freeze()
	}
	return p, err
}

// shapes in the order in which they are measured and printed.
func (o *scanOptions) shapes() []shape {
	if o.loose {
		return []shape{shapeForward}
	}
	return []shape{shapeForward, shapeBackward, shapeShort, shapePair}
}

// measureScans runs the engines alternately, and returns their results for each round.
// Round 0 fills caches.
func measureScans(o *scanOptions, processes []*engineWorker, progress *report.Progress) (rounds []round, err error) {
	for n := range o.rounds + 1 {
		r := round{}
		for _, shape := range o.shapes() {
			r[shape] = make([]result, len(processes))
			for i := range processes {
				i = (i + n) % len(processes) // no engine always follows the same one
				p := processes[i]
				progress.Show("round %d of %d: %s %s", n, o.rounds, p.name, shape)
				if r[shape][i], err = p.doThawed(task{Shape: shape, Scans: o.shortScans, Seed: uint64(n)}); err != nil {
					return nil, err
				}
			}
		}
		rounds = append(rounds, r)
	}
	progress.Line("%d rounds measured", o.rounds)
	return rounds, nil
}
