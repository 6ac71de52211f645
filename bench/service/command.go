package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/bench/service/load"
)

// options are the flags.
type options struct {
	rows        []string
	contestants []string
	only        map[string]bool // of contestants; empty: all
	rounds      int
	slot        time.Duration
	overload    time.Duration
	keys        int
	valueBytes  int
	long        bool
	timeout     time.Duration // of a call of kvd's client; 0: the client's default
	kvd         string
	dir         string
	out         string
}

func newCompareCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "service",
		Short: "Compare kvd as a service with Redis, etcd and memcached",
		Long: `Compare kvd as a service with Redis, etcd and memcached, and say which goals are reached.

The short form takes some twelve minutes. A contestant that is not installed is SKIPPED.`,
		Example: "  service --rows get,mix --rounds 5 --slot 5s --out slots.jsonl",
		Args:    cobra.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&o.rows, "rows", rows, "what is compared")
	f.StringSliceVar(&o.contestants, "contestants", nil, "contestants to compare (default all)")
	f.IntVar(&o.rounds, "rounds", 3, "rounds that are measured")
	f.DurationVar(&o.slot, "slot", 1500*time.Millisecond, "how long a contestant is measured in each round")
	f.DurationVar(&o.overload, "overload", 15*time.Second, "how long the overload lasts")
	f.IntVar(&o.keys, "keys", 1_000_000, "keys that are there, and are chosen of")
	f.IntVar(&o.valueBytes, "value-size", 128, "bytes of a value")
	f.BoolVar(&o.long, "long", false, "five rounds of 10 s, and a minute of overload, unless flags say otherwise")
	f.StringVar(&o.kvd, "kvd", "bin/kvd", "kvd's binary")
	f.StringVar(&o.dir, "dir", ".", "where the temporary directory is made")
	f.StringVar(&o.out, "out", "", "new file for each slot as a line of JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.long {
			lengthen(&o, f.Changed)
		}
		if err := o.validate(); err != nil {
			return err
		}
		return compare(c.Context(), &o, c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

func lengthen(o *options, given func(flag string) bool) {
	if !given("rounds") {
		o.rounds = 5
	}
	if !given("slot") {
		o.slot = 10 * time.Second
	}
	if !given("overload") {
		o.overload = time.Minute
	}
}

func (o *options) validate() error {
	for _, row := range o.rows {
		if !slices.Contains(rows, row) {
			return fmt.Errorf("no row is named %q; choose of %q: %w", row, rows, command.ErrUsage)
		}
	}
	o.only = make(map[string]bool)
	for _, name := range o.contestants {
		if _, err := findContestant(name); err != nil {
			return err
		}
		o.only[name] = true
	}
	switch {
	case o.rounds < 1:
		return fmt.Errorf("%d rounds, want at least 1: %w", o.rounds, command.ErrUsage)
	case o.slot < minSlot:
		return fmt.Errorf("slots of %v, want at least %v: %w", o.slot, minSlot, command.ErrUsage)
	case o.overload < time.Second:
		return fmt.Errorf("an overload of %v, want at least 1s: %w", o.overload, command.ErrUsage)
	case o.keys < leastKeys:
		return fmt.Errorf("%d keys, want at least %d: %w", o.keys, leastKeys, command.ErrUsage)
	case o.valueBytes < load.MinValueBytes:
		return fmt.Errorf("values of %d bytes, want at least %d: %w", o.valueBytes, load.MinValueBytes, command.ErrUsage)
	}
	return nil
}

// minSlot is the shortest slot in which the processor time of a server, counted in
// ticks of 10 ms, is significant.
const minSlot = 50 * time.Millisecond

// compare measures all selected rows and prints the results, including those measured
// before an error.
func compare(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	return withArena(o, stderr, func(a *arena) error {
		var slots []slot
		var wanted []string // cells
		var failed error
		for _, c := range cells(o) {
			if !slices.Contains(o.rows, c.row) {
				continue
			}
			wanted = append(wanted, c.name)
			measured, err := a.hold(ctx, &c)
			slots = append(slots, measured...)
			if failed = err; failed != nil {
				break
			}
		}
		slots = derive(slots)
		report.PrintEnvironment(stdout, a.dir, commit)
		return errors.Join(failed, printSlots(stdout, slots), printVerdicts(stdout, slots, wanted))
	})
}
