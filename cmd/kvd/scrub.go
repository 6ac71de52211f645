package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// errDamageFound is the result of a scrub that found damage.
var errDamageFound = errors.New("damaged")

func (a *app) scrubCommand() *cobra.Command {
	rate := rateFlag{pace.DefaultRate}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "scrub",
		Short: "Verify every checksum of a running server's files",
		Long: "Have a running server read all its files and verify every checksum: tables, value\n" +
			"files, manifests, the log, STORE and CLOCK. Clients are served meanwhile. Each\n" +
			"damaged place is printed when it is found: file, kind, offset, of a table the keys\n" +
			"that cannot be read for it, and what is wrong. Reads of the keys of damaged places fail\n" +
			"until the store is repaired; all other data is served. To repair it, stop the server:\n" +
			"kvd repair --range keeps what can be read of damaged tables and value files, and names\n" +
			"all lost keys with --dry-run; kvd restore makes a store of a backup.\n\n" +
			"The server also scrubs by itself, slowly: see kvd serve --scrub-interval. Of a\n" +
			"stopped store use kvd check. If the server has identities, the command needs an\n" +
			"administrator.\n\n" +
			"With --json each line is an object: first those of damaged places, with keys escaped\n" +
			"as by -e, then one with files, bytes, damaged and seconds.\n\n" +
			"Exit codes: 0 everything is whole; 5 the server cannot be reached; 7 not signed in or\n" +
			"not allowed; 65 something is damaged.",
		Example: "  kvd scrub --addr db1:7070 --rate 20MiB\n" +
			"  kvd scrub --json",
		Args: noArguments,
	}
	server := a.connection(cmd)
	rate.flag(cmd, "read at most this much a second; at least 16KiB")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.with(func(c *kvd.Client) error {
			s := scrubOutput{app: a, json: asJSON, files: make(map[string]bool), begin: time.Now()}
			s.progress = startProgress(a.err, "bytes", 0)
			err := c.Scrub(cmd.Context(), rate.bytes, s.told)
			s.progress.close()
			if err != nil {
				return err
			}
			return s.finish()
		})
	}
	return cmd
}

// scrubOutput prints what a scrub finds.
type scrubOutput struct {
	app      *app
	json     bool
	progress *progress
	begin    time.Time
	last     kvd.ScrubStep
	places   int
	files    map[string]bool // damaged
	err      error           // of the output
}

func (s *scrubOutput) told(step kvd.ScrubStep) {
	s.progress.update(step.Done, step.Total)
	s.last = step
	d := step.Damage
	if d == nil {
		return
	}
	s.places++
	s.files[d.File] = true
	if s.json {
		s.print(map[string]any{
			"file": d.File, "kind": d.Kind, "offset": d.Offset, "reason": d.Reason,
			"first_key": escape.Bytes(d.First), "last_key": escape.Bytes(d.Last),
		})
		return
	}
	where, keys := "", ""
	if d.Offset >= 0 {
		where = fmt.Sprintf(" at offset %d", d.Offset)
	}
	if len(d.Last) > 0 {
		keys = fmt.Sprintf(", keys from %s to %s", escape.Bytes(d.First), escape.Bytes(d.Last))
	}
	_, err := fmt.Fprintf(s.app.out, "DAMAGED %s (%s)%s%s: %s\n", d.File, d.Kind, where, keys, d.Reason)
	s.keep(err)
}

// finish prints the result, and returns an error if anything is damaged.
func (s *scrubOutput) finish() error {
	took := time.Since(s.begin)
	if s.json {
		s.print(map[string]any{"files": s.last.Files, "bytes": s.last.Done, "damaged": s.places, "seconds": took.Seconds()})
	} else if s.places == 0 {
		_, err := fmt.Fprintf(s.app.out, "whole: %d files, %s, in %v\n", s.last.Files, humanBytes(s.last.Done), took.Round(time.Millisecond))
		s.keep(err)
	}
	if s.err == nil && s.places > 0 {
		return fmt.Errorf("%w: %d places in %d of %d files; reads of their keys fail, everything else is served",
			errDamageFound, s.places, len(s.files), s.last.Files)
	}
	return s.err
}

func (s *scrubOutput) print(line any) { s.keep(json.NewEncoder(s.app.out).Encode(line)) }

func (s *scrubOutput) keep(err error) {
	if s.err == nil {
		s.err = err
	}
}
