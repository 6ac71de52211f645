package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check DIR",
		Short: "Read every byte of a stopped store and report damage",
		Long: "Read every byte of a stopped store and list its files: kind, size, and ok, or what\n" +
			"is damaged and where: of the log each segment is judged, and of a file up to 64 places\n" +
			"are named. What cannot be judged without a damaged file, such as the tables of a\n" +
			"partition whose file list is lost, is listed as not checked. The command changes no file.\n\n" +
			"Exit codes: 0 the store is whole; 65 a file is damaged, missing or of a newer\n" +
			"version; 74 the disk cannot be read; 75 a server has the store open.",
		Args: needs("DIR"),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		progress := startProgress(a.err, "bytes", 1)
		report, err := inspect.Check(cmd.Context(), vfs.OS, path.Clean(args[0]), replicated.CheckLog, progress.update)
		progress.close()
		if err != nil {
			return named(err)
		}
		if asJSON {
			encoder := json.NewEncoder(a.out)
			encoder.SetIndent("", "  ")
			err = encoder.Encode(report)
		} else {
			err = printReport(a.out, report)
		}
		if err != nil {
			return err
		}
		if damaged := len(report.Damaged()); damaged > 0 {
			return fmt.Errorf("%s: %d of %d files are damaged, missing or unreadable: %w", report.Dir, damaged, len(report.Files), report.Err())
		}
		return nil
	}
	return cmd
}

// update receives the progress of inspect.Check.
func (p *progress) update(done, total int64) {
	p.done.Store(done)
	p.items.Store(done)
	p.total.Store(total)
}

func printReport(w io.Writer, r *inspect.Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FILE\tKIND\tBYTES\tSTATUS")
	for i := range r.Files {
		f := &r.Files[i]
		status := f.Status
		if f.Note != "" {
			status += " (" + f.Note + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", f.Path, f.Kind, f.Bytes, status)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "whole"
	if r.Unchecked > 0 {
		verdict = "no damage found"
	}
	if n := len(r.Damaged()); n > 0 {
		verdict = fmt.Sprintf("DAMAGED: %d files", n)
	}
	if r.Unchecked > 0 {
		verdict += fmt.Sprintf(", %d files not checked", r.Unchecked)
	}
	_, err := fmt.Fprintf(w, "\n%s: %s. %d bytes in %d files, %d partitions, %d tables with %d entries, %d records in the log, last sequence number %d\n",
		r.Dir, verdict, r.Bytes, len(r.Files), r.Partitions, r.Tables, r.Entries, r.Records, r.LastSeq)
	return err
}
