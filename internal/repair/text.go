package repair

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/kvd-db/kvd/internal/kv"
)

// maxLines bounds how many losses Write prints; JSON has all.
const maxLines = 100

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	r.writeFiles(&b)
	r.writeLosses(&b)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	if r.InPlace != nil {
		r.writeInPlace(&b)
		_, err := io.WriteString(w, b.String())
		return err
	}
	verdict := "nothing was lost"
	switch n := len(r.Losses); {
	case n == 1:
		verdict = "1 LOSS"
	case n > 1:
		verdict = fmt.Sprintf("%d LOSSES", n)
	}
	if r.BackupVersion > 0 {
		verdict += fmt.Sprintf("; %d entries were filled from the backup of version %d", r.Filled, r.BackupVersion)
	}
	fmt.Fprintf(&b, "%s -> %s: %s. %d of %d files are damaged or missing. The new store has %d partitions, %d entries in tables, %d records in the log, last sequence number %d\n",
		r.Source, r.Target, verdict, r.Damaged(), len(r.Files), r.Partitions, r.Entries, r.Records, r.LastSeq)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeInPlace prints what a repair in place does.
func (r *Report) writeInPlace(b *strings.Builder) {
	in := r.InPlace
	if r.Damaged() == 0 {
		fmt.Fprintf(b, "%s: all %d files are whole; there is nothing to repair\n", r.Source, len(r.Files))
		return
	}
	if in.Hidden > 0 || in.Ranges > 0 {
		fmt.Fprintf(b, "Older versions are hidden, because newer ones may be lost: of %d keys, and of all keys in %d ranges.\n", in.Hidden, in.Ranges)
	}
	verdict, replace, restore := "nothing is lost", "tables to replace", "keys to restore"
	if in.Done {
		replace, restore = "replaced tables", "restored keys"
	}
	switch n := len(r.Losses); {
	case n == 1:
		verdict = "1 LOSS"
	case n > 1:
		verdict = fmt.Sprintf("%d LOSSES", n)
	}
	fmt.Fprintf(b, "%s: %s. %d of %d files are damaged or missing; %s: %d", r.Source, verdict, r.Damaged(), len(r.Files), replace, in.Replaced)
	if r.BackupVersion > 0 {
		fmt.Fprintf(b, "; %s from the backup of version %d: %d", restore, r.BackupVersion, r.Filled)
	}
	b.WriteByte('\n')
	if in.Done {
		fmt.Fprintf(b, "The files that were replaced are in %s\n", in.Aside)
	}
}

// writeFiles lists what was done with each damaged file.
func (r *Report) writeFiles(b *strings.Builder) {
	if r.Damaged() == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DAMAGED FILE\tOFFSET\tBYTES\tACTION\tWHAT")
	for i := range r.Files {
		f := &r.Files[i]
		for _, d := range f.Damage {
			offset, bytes := "-", "-"
			if d.Offset >= 0 {
				offset = fmt.Sprint(d.Offset)
			}
			if d.Bytes > 0 {
				bytes = fmt.Sprint(d.Bytes)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", f.Path, offset, bytes, f.Action, d.Reason)
		}
	}
	_ = t.Flush() // to memory
	b.WriteByte('\n')
}

// writeLosses lists what may be missing. A range key is in quotes, as JSON has it.
func (r *Report) writeLosses(b *strings.Builder) {
	if len(r.Losses) == 0 {
		return
	}
	intro := "These writes may be missing. A key in a range may show an older value, and a deleted key may be back.\n"
	switch {
	case r.InPlace != nil && r.BackupVersion > 0:
		intro = "These writes may be missing. A key in a range shows what the backup has, and a key that was deleted since may be back.\n"
	case r.InPlace != nil:
		intro = "These writes may be missing. A key in a range is absent, unless it was written again since.\n"
	}
	b.WriteString(intro + "A batch or transaction with one of these versions may be there in part.\n")
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PARTITION\tKEYS\tVERSIONS\tENTRIES\tFILE\tWHY")
	for i := range r.Losses {
		if i == maxLines {
			fmt.Fprintf(t, "... and %d more: --json or --report has all\n", len(r.Losses)-i)
			break
		}
		l := &r.Losses[i]
		entries := "unknown"
		if l.Entries > 0 {
			entries = fmt.Sprintf("at most %d", l.Entries)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", l.Partition, l.keys(), l.versions(), entries, l.File, l.Reason)
	}
	_ = t.Flush()
	b.WriteByte('\n')
}

func (l *Loss) keys() string {
	switch {
	case l.FirstKey == nil && l.LastKey == nil:
		return "all"
	case l.FirstKey == nil:
		return fmt.Sprintf("up to '%s'", l.LastKey)
	case l.LastKey == nil:
		return fmt.Sprintf("from '%s' on", l.FirstKey)
	case string(l.FirstKey) == string(l.LastKey):
		return fmt.Sprintf("'%s'", l.FirstKey)
	}
	return fmt.Sprintf("'%s' to '%s'", l.FirstKey, l.LastKey)
}

func (l *Loss) versions() string {
	switch {
	case l.FirstVersion <= 1 && l.LastVersion >= kv.MaxSeqNum:
		return "all"
	case l.LastVersion >= kv.MaxSeqNum:
		return fmt.Sprintf("from %d on", l.FirstVersion)
	case l.FirstVersion == l.LastVersion:
		return fmt.Sprint(l.FirstVersion)
	}
	return fmt.Sprintf("%d to %d", l.FirstVersion, l.LastVersion)
}
