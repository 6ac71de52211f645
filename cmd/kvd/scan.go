package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// bounds holds the flags that choose a range of keys.
type bounds struct{ prefix, start, end string }

func (b *bounds) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&b.prefix, "prefix", "", "only keys with this prefix")
	cmd.Flags().StringVar(&b.start, "start", "", "first key, included")
	cmd.Flags().StringVar(&b.end, "end", "", "end of the range, excluded")
	cmd.MarkFlagsMutuallyExclusive("prefix", "start")
	cmd.MarkFlagsMutuallyExclusive("prefix", "end")
}

// boundFlags are the names of the flags.
var boundFlags = []string{"prefix", "start", "end"}

// given reports whether any of the flags is given, even if empty.
func (b *bounds) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(boundFlags, cmd.Flags().Changed)
}

func (b *bounds) decode(enc *encoding) (kvd.Range, error) {
	prefix, err := enc.decode("prefix", b.prefix)
	if err != nil {
		return kvd.Range{}, err
	}
	if len(prefix) > 0 {
		return kvd.Prefix(prefix), nil
	}
	start, err := enc.decode("start", b.start)
	if err != nil {
		return kvd.Range{}, err
	}
	end, err := enc.decode("end", b.end)
	return kvd.Between(start, end), err
}

func (a *app) scanCommand() *cobra.Command {
	var enc encoding
	var keys bounds
	var limit int
	var keysOnly, reverse, count bool
	var fresh freshness
	var format string
	cmd := &cobra.Command{
		Use:   "scan",
		Short: "Print keys and values in the order of the keys",
		Long: "Print keys and values in the order of the keys, all read at one version.\n\n" +
			"The default format is table on a terminal and raw into a pipe: key, tab, value,\n" +
			"newline, all bytes unchanged. If keys or values may contain tabs or newlines use\n" +
			"json: one line for each item, as kvd export writes it, with its version, and\n" +
			"ttl_ms if it expires.",
		Example: "  kvd scan --prefix user/ --limit 10\n" +
			"  kvd scan --end user/17 --reverse --limit 1   the last key before user/17\n" +
			"  kvd scan --prefix user/ --count",
		Args: noArguments,
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	keys.flags(cmd)
	fresh.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after this many items; 0 means no limit")
	cmd.Flags().BoolVar(&keysOnly, "keys-only", false, "print no values")
	cmd.Flags().BoolVar(&reverse, "reverse", false, "from the last key to the first")
	cmd.Flags().BoolVar(&count, "count", false, "print only the number of items")
	cmd.Flags().StringVarP(&format, "output", "o", "", "table, raw or json")
	cmd.MarkFlagsMutuallyExclusive("count", "output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := keys.decode(&enc)
		if err != nil {
			return err
		}
		if limit < 0 {
			return usagef("--limit %d is negative", limit)
		}
		if err := fresh.check(); err != nil {
			return err
		}
		if format == "" {
			format = "raw"
			if isTerminal(a.out) {
				format = "table"
			}
		}
		printer, err := newItemPrinter(a.out, format, &enc, keysOnly)
		if err != nil {
			return err
		}
		stale, minVersion := fresh.options()
		options := []kvd.ScanOption{kvd.Limit(limit), stale, minVersion}
		if keysOnly || count {
			options = append(options, kvd.KeysOnly())
		}
		if reverse {
			options = append(options, kvd.Reverse())
		}
		if count {
			printer = countPrinter(a.out)
		}
		err = server.with(func(c *kvd.Client) error {
			for item, err := range c.Scan(cmd.Context(), r, options...) {
				if err != nil {
					return err
				}
				if err := printer.print(&item); err != nil {
					return err
				}
			}
			return nil
		})
		if count && err != nil {
			return err // without the incomplete count
		}
		return errors.Join(err, printer.flush())
	}
	return cmd
}

// itemPrinter prints the items of a scan.
type itemPrinter struct {
	print func(*kvd.Item) error
	flush func() error
}

func newItemPrinter(w io.Writer, format string, enc *encoding, keysOnly bool) (*itemPrinter, error) {
	out := bufio.NewWriter(w)
	switch format {
	case "json":
		return &itemPrinter{flush: out.Flush, print: func(item *kvd.Item) error {
			l := newLine(item)
			l.KeyOnly = keysOnly
			return l.write(out)
		}}, nil
	case "raw":
		return &itemPrinter{flush: out.Flush, print: func(item *kvd.Item) error {
			_, err := out.WriteString(enc.encode(item.Key, false))
			if !keysOnly {
				_, err = out.WriteString("\t" + enc.encode(item.Value, false))
			}
			return errors.Join(err, out.WriteByte('\n'))
		}}, nil
	case "table":
		return tablePrinter(out, enc, keysOnly), nil
	}
	return nil, usagef("--output %q; want table, raw or json", format)
}

// countPrinter prints the number of items.
func countPrinter(w io.Writer) *itemPrinter {
	n := 0
	return &itemPrinter{
		print: func(*kvd.Item) error { n++; return nil },
		flush: func() error { _, err := fmt.Fprintln(w, n); return err },
	}
}

// tableBlock is how many rows are aligned together. A scan may be long, and its items are
// printed as they arrive.
const tableBlock = 100

func tablePrinter(out *bufio.Writer, enc *encoding, keysOnly bool) *itemPrinter {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	flush := func() error { return errors.Join(t.Flush(), out.Flush()) }
	row := func(item *kvd.Item) error {
		if rows++; rows%tableBlock == 0 {
			if err := flush(); err != nil {
				return err
			}
		}
		if keysOnly {
			_, err := fmt.Fprintln(t, enc.encode(item.Key, true))
			return err
		}
		_, err := fmt.Fprintf(t, "%s\t%s\n", enc.encode(item.Key, true), enc.encode(item.Value, true))
		return err
	}
	return &itemPrinter{print: row, flush: flush}
}
