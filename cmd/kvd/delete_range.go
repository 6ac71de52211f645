package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// rangeRemoval removes the keys of a range. On a terminal it shows them and asks first, unless
// --yes is given; without one, --all needs --yes.
type rangeRemoval struct {
	app              *app
	enc              *encoding
	all, dryRun, yes bool
	durability       kvd.Durability
}

func (r *rangeRemoval) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.all, "all", false, "remove every key of the store")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "count the keys of the range, show the first ones, and remove nothing")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask for confirmation")
	for _, name := range boundFlags {
		cmd.MarkFlagsMutuallyExclusive("all", name)
	}
}

// everything reports whether no key lies outside a range.
func everything(r kvd.Range) bool {
	const first = "\x00" // of all keys: none is empty
	return len(r.End) == 0 && string(r.Start) <= first
}

func (r *rangeRemoval) run(ctx context.Context, c *kvd.Client, keys kvd.Range) error {
	asks := !r.yes && isTerminal(r.app.in)
	count, damaged := 0, false
	if r.all && !asks && !r.dryRun {
		// A script without a range may have the wrong store.
		var err error
		if count, err = r.show(ctx, c, keys, io.Discard); err != nil && !errors.Is(err, kvd.ErrCorrupt) {
			return err
		}
		damaged = err != nil
		if !r.yes {
			return usagef("kvd del --all would remove all %d keys%s; add --yes to remove them", count, more(damaged))
		}
	}
	if r.dryRun || asks {
		shown := r.app.out
		if !r.dryRun {
			shown = r.app.err // with the question
		}
		count, err := r.show(ctx, c, keys, shown)
		damaged := errors.Is(err, kvd.ErrCorrupt)
		if r.dryRun || err != nil && !damaged || count == 0 && !damaged {
			return err
		}
		if err := r.app.confirm(ctx, "Remove them?"); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := c.DeleteRange(ctx, keys, kvd.Durable(r.durability)); err != nil {
		return err
	}
	if r.all && r.yes {
		if _, err := fmt.Fprintf(r.app.out, "keys removed: %d%s\n", count, more(damaged)); err != nil {
			return err
		}
	}
	r.app.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
	return nil
}

// shownKeys is how many keys of a range are shown: few enough to fit on a screen with the
// question.
const shownKeys = 10

// more follows a number of keys if further ones cannot be read.
func more(damaged bool) string {
	if damaged {
		return " and those that cannot be read, since their data is damaged"
	}
	return ""
}

// show prints how many keys there are and the first of them. If some cannot be read, which is
// one reason to remove them, it prints so and returns kvd.ErrCorrupt.
func (r *rangeRemoval) show(ctx context.Context, c *kvd.Client, keys kvd.Range, w io.Writer) (count int, err error) {
	var first strings.Builder
	var damaged error
	for item, err := range c.Scan(ctx, keys, kvd.KeysOnly()) {
		if damaged = err; errors.Is(err, kvd.ErrCorrupt) {
			break
		}
		if err != nil {
			return count, err
		}
		if count++; count <= shownKeys {
			fmt.Fprintf(&first, "  %s\n", r.enc.encode(item.Key, true))
		}
	}
	if count > shownKeys {
		fmt.Fprintf(&first, "  and %d more\n", count-shownKeys)
	}
	if _, err := fmt.Fprintf(w, "keys that would go: %d%s\n%s", count, more(damaged != nil), first.String()); err != nil {
		return count, err
	}
	return count, damaged
}

// errRefused: the user did not confirm.
var errRefused = errors.New("nothing was removed")

// confirm asks the user, and returns nil if the answer is yes.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(until(ctx, a.in)).ReadString('\n') // the end of input means no
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errRefused
}
