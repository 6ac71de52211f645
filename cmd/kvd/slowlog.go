package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) slowlogCommand() *cobra.Command {
	var limit int
	var reset bool
	var format string
	cmd := &cobra.Command{
		Use:   "slowlog",
		Short: "Print slow requests of the server, and where their time went",
		Long: "Print the requests that took long in the server, the newest first, with the time\n" +
			"of each stage. Operations of one frame that were served together are one request,\n" +
			"shown with the key of the first. The server's settings --slow-log-time and\n" +
			"--slow-log-entries define which requests are slow and how many are kept. The\n" +
			"server keeps the beginning of keys, unless --slow-log-hide-keys is set, and never\n" +
			"values. Scans are not recorded.\n\n" +
			"  gate       decoding the request, and waiting for admission in an overload\n" +
			"  inbox      waiting for the partition to take the request\n" +
			"  batch      a write: until its micro-batch was handed to the log\n" +
			"  engine     lookups; a write: the work after the log\n" +
			"  log_write  until the kernel had the record\n" +
			"  sync       until the disk had the record\n" +
			"  reply      encoding and sending the answer: long if the client is slow\n\n" +
			"The table leaves out stages of less than a twentieth of the total. The format\n" +
			"json, with one line for each request, has all stages in microseconds.",
		Example: "  kvd slowlog --limit 10\n" +
			"  kvd slowlog -o json | jq 'select(.stages_us.sync > 20000)'\n" +
			"  kvd slowlog --reset",
		Args: noArguments,
	}
	server := a.connection(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "print at most this many; 0 means all")
	cmd.Flags().BoolVar(&reset, "reset", false, "clear the log, and print nothing")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	cmd.MarkFlagsMutuallyExclusive("reset", "limit")
	cmd.MarkFlagsMutuallyExclusive("reset", "output")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 0 {
			return usagef("--limit %d is negative", limit)
		}
		if format != "table" && format != "json" {
			return usagef("--output %q; want table or json", format)
		}
		return server.with(func(c *kvd.Client) error {
			if reset {
				return c.ClearSlowRequests(cmd.Context())
			}
			log, err := c.SlowRequests(cmd.Context(), limit)
			if err != nil {
				return err
			}
			if format == "json" {
				return writeSlowJSON(a.out, &log)
			}
			return writeSlowTable(a.out, &log)
		})
	}
	return cmd
}

func writeSlowTable(w io.Writer, log *kvd.SlowLog) error {
	if log.Threshold == 0 {
		_, err := fmt.Fprintln(w, "the server keeps no slow log; it would with --slow-log-time")
		return err
	}
	_, err := fmt.Fprintf(w, "requests of %v or longer since the server started: %d\n", log.Threshold, log.Total)
	if err != nil || len(log.Requests) == 0 {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "id\ttime\ttook\twhere\tmethod\tops\tbytes\tkey\tcode\tpeer")
	for i := range log.Requests {
		r := &log.Requests[i]
		fmt.Fprintf(t, "%d\t%s\t%v\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", r.ID, r.At.Format("2006-01-02 15:04:05.000"),
			round(r.Timings.Total()), spellStages(longest(&r.Timings)), r.Method, r.Ops, r.Bytes, spellPrefix(r), r.Code, r.Peer)
	}
	return t.Flush()
}

// spellPrefix formats what is known of a key.
func spellPrefix(r *kvd.SlowRequest) string {
	switch more := r.KeyBytes - len(r.KeyPrefix); {
	case more == 0:
		return escape.Bytes(r.KeyPrefix)
	case len(r.KeyPrefix) == 0:
		return fmt.Sprintf("(%d bytes)", more)
	default:
		return fmt.Sprintf("%s (%d more bytes)", escape.Bytes(r.KeyPrefix), more)
	}
}

// slowJSON is the JSON form of a slow request.
type slowJSON struct {
	ID        uint64           `json:"id"`
	Time      time.Time        `json:"time"`
	Method    string           `json:"method"`
	Code      string           `json:"code"`
	Peer      string           `json:"peer"`
	Key       *string          `json:"key_prefix,omitempty"`
	KeyBase64 *string          `json:"key_prefix_base64,omitempty"`
	KeyBytes  int              `json:"key_bytes"`
	Ops       int              `json:"ops"`
	Bytes     int              `json:"bytes"`
	Micros    int64            `json:"total_us"`
	Stages    map[string]int64 `json:"stages_us"`
}

func writeSlowJSON(w io.Writer, log *kvd.SlowLog) (err error) {
	for i := range log.Requests {
		r := &log.Requests[i]
		line := slowJSON{
			ID: r.ID, Time: r.At.UTC(), Method: r.Method, Code: r.Code, Peer: r.Peer, KeyBytes: r.KeyBytes,
			Ops: r.Ops, Bytes: r.Bytes, Micros: r.Timings.Total().Microseconds(), Stages: make(map[string]int64),
		}
		line.Key, line.KeyBase64 = spell(r.KeyPrefix)
		for _, s := range serverStages(&r.Timings) {
			line.Stages[s.name] = s.took.Microseconds()
		}
		err = errors.Join(err, writeJSON(w, line))
	}
	return err
}
