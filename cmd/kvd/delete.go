package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) deleteCommand() *cobra.Command {
	var enc encoding
	var level durability
	var only condition
	var keys bounds
	removal := rangeRemoval{app: a, enc: &enc}
	cmd := &cobra.Command{
		Use:     "del KEY... | --prefix P | --start S --end E | --all",
		Aliases: []string{"delete"},
		Short:   "Remove keys, or all keys of a range",
		Long: "Remove keys, or all keys of a range. A key that does not exist is no error.\n\n" +
			"A range is removed atomically, whatever its size. It may have only --start or\n" +
			"only --end. On a terminal the command shows the keys and asks for confirmation,\n" +
			"unless --yes is given. Without a terminal --all requires --yes; the command then\n" +
			"counts the keys, removes them and prints the count.\n\n" +
			"With --if-version or --if-value the key is removed only if the condition holds;\n" +
			"otherwise the exit code is 4.",
		Example: "  kvd del user/1 user/2\n" +
			"  kvd del --if-version 17 user/1\n" +
			"  kvd del --prefix session/ --dry-run\n" +
			"  kvd del --start log/2025 --end log/2026 --yes",
		Args: cobra.ArbitraryArgs,
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	level.flag(cmd)
	only.flags(cmd)
	keys.flags(cmd)
	removal.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		condition, err := only.options(&enc)
		if err != nil {
			return err
		}
		ranged := removal.all || keys.given(cmd)
		switch {
		case ranged && len(args) > 0:
			return usagef("both keys and a range are given; want one of them")
		case ranged && condition != nil:
			return usagef("a condition applies to one key, not to a range; kvd txn can combine both")
		case !ranged && len(args) == 0:
			return usagef("want keys, or a range: --prefix, --start and --end, or --all")
		case !ranged && removal.dryRun:
			return usagef("--dry-run is for a range")
		case condition != nil && len(args) > 1:
			return usagef("a condition applies to one key, not to %d; kvd txn can have several", len(args))
		}
		removal.durability = level.level
		if ranged {
			r, err := keys.decode(&enc)
			if err != nil {
				return err
			}
			if everything(r) && !removal.all {
				return usagef("the range holds all keys; say --all to remove every key")
			}
			return server.with(func(c *kvd.Client) error { return removal.run(cmd.Context(), c, r) })
		}
		decoded := make([][]byte, len(args))
		for i, arg := range args {
			if decoded[i], err = enc.key(arg); err != nil {
				return err
			}
		}
		return server.with(func(c *kvd.Client) error {
			return a.deleteKeys(cmd.Context(), c, decoded, append(condition, kvd.Durable(level.level)))
		})
	}
	return cmd
}

func (a *app) deleteKeys(ctx context.Context, c *kvd.Client, keys [][]byte, options []kvd.WriteOption) error {
	begin := time.Now()
	for _, key := range keys {
		if err := c.Delete(ctx, key, options...); err != nil {
			return err
		}
	}
	a.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
	return nil
}
