package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kvd-db/kvd/bench/report"
)

// contestOptions are the flags that all contests share.
type contestOptions struct {
	engines  []string
	rounds   int
	slot     time.Duration
	keys     int
	memory   int64 // MiB
	fresh    bool
	dir      string
	profiles string
	out      string
}

func (o *contestOptions) register(f *pflag.FlagSet, engines []string, keys int, slot time.Duration) {
	f.StringSliceVar(&o.engines, "engines", engines, "engines to compare")
	f.IntVar(&o.rounds, "rounds", 3, "rounds that are measured")
	f.DurationVar(&o.slot, "slot", slot, "how long an engine runs in each round")
	f.IntVar(&o.keys, "keys", keys, "keys that are chosen of")
	f.Int64Var(&o.memory, "memory", 1024, "MiB of memtables and caches of each engine")
	o.registerPlace(f)
}

// registerPlace registers the flags that say where files are written.
func (o *contestOptions) registerPlace(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "dir", ".", "where the temporary directory is made")
	f.StringVar(&o.profiles, "profile", "", "existing directory for a CPU profile of each engine, load left out")
	f.StringVar(&o.out, "out", "", "new file for each slot as a line of JSON")
}

func (o *contestOptions) validate() error {
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
	case o.slot < 0:
		return fmt.Errorf("slots of %v, want more than 0", o.slot)
	case o.memory < minMemoryMiB:
		return fmt.Errorf("%d MiB of memory, want at least %d", o.memory, minMemoryMiB)
	}
	return nil
}

func (o *contestOptions) contest(name string) *contest {
	return &contest{name: name, engines: o.engines, rounds: o.rounds, fresh: o.fresh}
}

// validate returns an error for settings that the engines cannot work with.
func (c *contest) validate() error {
	for _, cell := range c.cells {
		if err := cell.validate(&c.setup); err != nil {
			return fmt.Errorf("%s: %w", cell.name, err)
		}
	}
	if c.setup.Data.Keys > 0 {
		return c.setup.Data.validate()
	}
	return nil
}

func (c *cell) validate(s *setup) error {
	switch {
	case c.run != nil:
		return c.run.Validate()
	case c.trial != nil:
		return c.trial.validate(s.Records)
	case c.mix != nil:
		return c.mix.validate(s.Data)
	}
	return nil
}

// runContests runs contests one after the other and prints the results.
func runContests(c *cobra.Command, o *contestOptions, contests ...*contest) error {
	if err := o.validate(); err != nil {
		return err
	}
	for _, contest := range contests {
		if err := contest.validate(); err != nil {
			return err
		}
	}
	return failed(withArena(c.Context(), o, c.ErrOrStderr(), func(a *arena) error {
		slots, err := holdAll(c.Context(), a, contests)
		if err != nil {
			return err
		}
		return printReport(c.OutOrStdout(), a, slots)
	}))
}

func holdAll(ctx context.Context, a *arena, contests []*contest) (all []slot, err error) {
	for _, contest := range contests {
		slots, err := a.hold(ctx, contest)
		if err != nil {
			return nil, err
		}
		all = append(all, slots...)
	}
	return all, nil
}

// withArena calls use with an arena in a temporary directory, which it removes.
func withArena(ctx context.Context, o *contestOptions, stderr io.Writer, use func(*arena) error) (err error) {
	a := &arena{profiles: o.profiles, progress: report.NewProgress(stderr)}
	lines, err := report.CreateLines(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lines.Close()) }()
	a.report = func(s slot) error { return lines.Add(&s) }
	if a.dir, err = os.MkdirTemp(o.dir, ".bench."); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(a.dir)) }()
	return use(a)
}

func printReport(w io.Writer, a *arena, slots []slot) error {
	report.PrintEnvironment(w, a.dir, commit)
	if err := printSlots(w, slots); err != nil {
		return err
	}
	return printVerdicts(w, slots)
}
