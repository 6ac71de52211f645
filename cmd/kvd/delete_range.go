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
	count := 0
	if r.all && !asks && !r.dryRun {
		// A script without a range may have the wrong store.
		var err error
		if count, err = r.show(ctx, c, keys, io.Discard); err != nil {
			return err
		}
		if !r.yes {
			return usagef("kvd del --all would remove all %d keys; add --yes to remove them", count)
		}
	}
	if r.dryRun || asks {
		shown := r.app.out
		if !r.dryRun {
			shown = r.app.err // with the question
		}
		count, err := r.show(ctx, c, keys, shown)
		if err != nil || r.dryRun || count == 0 {
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
		if _, err := fmt.Fprintf(r.app.out, "keys removed: %d\n", count); err != nil {
			return err
		}
	}
	r.app.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
	return nil
}

// shownKeys is how many keys of a range are shown: few enough to fit on a screen with the
// question.
const shownKeys = 10

// show prints how many keys there are and the first of them.
func (r *rangeRemoval) show(ctx context.Context, c *kvd.Client, keys kvd.Range, w io.Writer) (count int, err error) {
	var first strings.Builder
	for item, err := range c.Scan(ctx, keys, kvd.KeysOnly()) {
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
	_, err = fmt.Fprintf(w, "keys that would go: %d\n%s", count, first.String())
	return count, err
}

// errRefused: the user did not confirm.
var errRefused = errors.New("nothing was removed")

// confirm asks the user, and returns nil if the answer is yes.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	// A read of a terminal cannot be cancelled; it ends with the process.
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.in).ReadString('\n') // the end of input means no
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errRefused
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errRefused, ctx.Err())
	}
}
