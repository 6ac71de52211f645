package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) txnCommand() *cobra.Command {
	var enc encoding
	var level durability
	var dryRun bool
	var format string
	cmd := &cobra.Command{
		Use:   "txn [FILE]",
		Short: "Run a script of reads, writes and assertions as one transaction",
		Long: "Run a script, from a file or standard input, as one atomic transaction. Each line\n" +
			"is an operation:\n\n" + verbHelp() + "\n" +
			"Reads see what earlier lines wrote. Words are separated by spaces. A word in\n" +
			`double quotes may contain spaces, \" for a quote, \\ for a backslash and \xNN for` + "\n" +
			`a byte; "" is the empty word. --hex, --base64 and --escaped give the encoding of` + "\n" +
			"keys, prefixes and values, in the script and in the output. Empty lines and lines\n" +
			"that begin with # are ignored.\n\n" +
			"If a line is invalid nothing is run; the exit code is 64. If an assertion fails\n" +
			"the transaction is rolled back; the exit code is 4. If the transaction conflicts\n" +
			"with another one it is run again, up to ten times; then the exit code is 6.\n\n" +
			"At the end the command prints the results of reads, as KEY = VALUE or KEY is\n" +
			"absent, and the version of the writes. With --output json each of these is an\n" +
			"object, with the number of its line.",
		Example: "  kvd txn transfer.txt\n" +
			"  printf '%s\\n' 'assert-version user/1 17' 'put user/1 Grace' 'del user/2' | kvd txn",
		Args: mayHave("FILE"),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	level.flag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "run the script, print what it reads, and write nothing")
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if format != "text" && format != "json" {
			return usagef("--output %q; want text or json", format)
		}
		source, err := a.openSource(args)
		if err != nil {
			return err
		}
		defer source.close()
		s, err := parseScript(until(cmd.Context(), source.r), &enc)
		if err != nil {
			return fmt.Errorf("%s: %w", source.name, err)
		}
		return server.with(func(c *kvd.Client) error {
			done, err := s.transact(cmd.Context(), c, dryRun, level.level)
			if err != nil {
				return fmt.Errorf("%s: %w", source.name, err)
			}
			out := bufio.NewWriter(a.out)
			write := done.text
			if format == "json" {
				write = done.json
			}
			return errors.Join(write(out, &enc), out.Flush())
		})
	}
	return cmd
}

func verbHelp() string {
	var b strings.Builder
	for _, v := range verbs {
		fmt.Fprintf(&b, "  %s %s\n", v.name, v.takes)
	}
	return b.String()
}

// outcome is the result of a script.
type outcome struct {
	seen      []sight
	version   uint64 // of the commit, otherwise of the reads; 0 if there was neither
	committed bool
}

// transact runs the script in a transaction. With dryRun it does not commit, and does not
// retry.
func (s script) transact(ctx context.Context, c *kvd.Client, dryRun bool, level kvd.Durability) (outcome, error) {
	if dryRun {
		tx, err := c.Begin()
		if err != nil {
			return outcome{}, err
		}
		defer tx.Discard()
		seen, err := s.run(ctx, tx)
		return outcome{seen: seen, version: tx.Version()}, err
	}
	var last *kvd.Txn
	o, err := kvd.Transact(ctx, c, func(tx *kvd.Txn) (outcome, error) {
		last = tx
		seen, err := s.run(ctx, tx)
		return outcome{seen: seen, committed: s.writes()}, err
	}, kvd.CommitWith(kvd.Durable(level)))
	if err == nil {
		o.version = last.CommittedVersion()
	}
	return o, err
}

// text prints the outcome as text, with keys and values encoded as in a script.
func (o *outcome) text(w io.Writer, enc *encoding) error {
	for i := range o.seen {
		s := &o.seen[i]
		line := enc.encodeWord(s.Key) + " is absent\n"
		if s.Found {
			line = enc.encodeWord(s.Key) + " = " + enc.encodeWord(s.Value) + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	end := "nothing was written\n"
	if o.committed {
		end = fmt.Sprintf("committed at version %d\n", o.version)
	} else if o.version != 0 {
		end = fmt.Sprintf("nothing was written; read at version %d\n", o.version)
	}
	_, err := io.WriteString(w, end)
	return err
}

// sightJSON is the JSON form of a sight, with the number of its line.
type sightJSON struct {
	Line int `json:"line"`
	lineJSON
	Absent bool `json:"absent,omitempty"`
}

// json prints the outcome as JSON lines.
func (o *outcome) json(w io.Writer, _ *encoding) error {
	for i := range o.seen {
		s := &o.seen[i]
		l := newLine(&s.Item)
		l.KeyOnly = !s.Found
		if err := writeJSON(w, &sightJSON{Line: s.line, lineJSON: l.json(), Absent: !s.Found}); err != nil {
			return err
		}
	}
	return writeJSON(w, &struct {
		Committed bool   `json:"committed"`
		Version   uint64 `json:"version"`
	}{o.committed, o.version})
}
