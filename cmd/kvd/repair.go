package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/repair"
	"github.com/kvd-db/kvd/internal/vfs"
)

// repairLost is the error of a repair that has ended, if writes may be missing in its result.
type repairLost struct{ what string }

func (e repairLost) Error() string {
	return e.what + "; the report lists their keys and versions"
}

// Is gives it the exit code of damage.
func (e repairLost) Is(target error) bool { return target == kv.ErrCorrupt }

func (a *app) repairCommand() *cobra.Command {
	var asJSON bool
	var reportFile, fromBackup string
	var o repair.Options
	var inPlace inPlaceRepair
	cmd := &cobra.Command{
		Use:   "repair SRC DST | repair --range DIR --aside ASIDE",
		Short: "Make a new store of what can be read of a damaged one, or repair its tables where they are",
		Long: "Make a new store in DST of everything in the stopped store SRC that still verifies,\n" +
			"and report what may be missing. SRC is not changed. DST must be empty or new; it\n" +
			"needs as much space as SRC has, and while a partition with damaged tables is\n" +
			"merged, that partition's size once more.\n\n" +
			"Records of the log after a damaged place are used, and so are the whole blocks of\n" +
			"a damaged table and the whole values of a damaged value file. Every version keeps\n" +
			"its number, so of each key the newest version that is left counts. Nothing is\n" +
			"invented. The report names the damaged parts of each file and, for everything\n" +
			"that may be missing, the keys and versions: such a key may show an older value,\n" +
			"and a key that was deleted may be back.\n\n" +
			"With --from-backup, wherever anything may be missing, the new store has what the\n" +
			"backup has: everything up to the version of the backup is then there, and later\n" +
			"versions may be missing. BACKUP is what kvd restore takes, or a directory to which\n" +
			"a backup was restored, perhaps with an archive. It must be of this very store, not\n" +
			"newer, and have lost nothing: a copy that was written to has other writes under the\n" +
			"same versions, and what a repair has dropped counts as deleted. The backup is unpacked\n" +
			"to DST.backup, or with --range to ASIDE.backup, and that is removed in the end.\n\n" +
			"Until the command has ended, DST is no store. If it is interrupted, remove DST and\n" +
			"repair again.\n\n" +
			"With --range, the stopped store DIR is repaired where it is, if nothing but tables\n" +
			"and value files is damaged. Each damaged table, and each table with values in a\n" +
			"damaged value file, is replaced by what still verifies of it; all other files stay.\n" +
			"A key that is lost is absent afterwards, unless it was written again since; an older\n" +
			"version of it does not show. With --from-backup it has what the backup has.\n\n" +
			"The command reads the whole store, prints which files are damaged and which keys and\n" +
			"versions would be missing, and asks before it changes anything; without a terminal it\n" +
			"needs --yes. Before it removes a file it copies it to ASIDE, with the file lists and\n" +
			"the report: to undo the repair before the store is opened again, copy the files back.\n" +
			"ASIDE must be empty or new, and outside DIR. While the command runs, ASIDE.scratch\n" +
			"needs as much space as the new tables, and as what the backup has of the keys. Each\n" +
			"partition changes at once: after a crash it is as it was or repaired, and the command,\n" +
			"given again with another ASIDE, repairs the rest.\n\n" +
			"With --dry-run the command does all of that up to the question: it verifies every\n" +
			"checksum of the store, makes the new tables in ASIDE.scratch to count what they keep\n" +
			"and lose, also with --from-backup, and prints the report; --report also writes it.\n" +
			"Then it removes the new tables. It changes no file in DIR, copies none to ASIDE, and\n" +
			"does not look whether ASIDE has space for them. It takes as long as the repair would\n" +
			"before its question, and the store must be stopped meanwhile. Without --aside the new\n" +
			"tables, and the backup while it is unpacked, are in the directory for temporary files\n" +
			"(TMPDIR). Without --range there is no dry run, since SRC is not changed.\n\n" +
			"--range does not work on a running server, which has its file lists in memory. While\n" +
			"a server runs, kvd del can delete the keys that kvd scrub prints: they are absent\n" +
			"then, and no more unreadable. The damaged table stays in the store until all of its\n" +
			"keys are deleted.\n\n" +
			"The store of a node of a cluster is not repaired: the other nodes have its data. Replace\n" +
			"the node: kvd cluster join --replace.\n\n" +
			"Exit codes: 0 nothing was lost; 64 DST or ASIDE is not empty, or SRC is no store; 65\n" +
			"the new or repaired store is whole, but writes may be missing in it, or would be\n" +
			"after --dry-run; also 65 if nothing was done, because a file of SRC is of a newer\n" +
			"version or, with --range, more is damaged than tables and value files; 74 a disk\n" +
			"failed; 75 a server has SRC open. What the disk cannot read of SRC counts as damage.",
		Example: "  kvd repair /var/lib/kvd /var/lib/kvd-repaired --report repair.json\n" +
			"  kvd repair /var/lib/kvd /var/lib/kvd-repaired --from-backup /backups/orders\n" +
			"  kvd check /var/lib/kvd-repaired\n" +
			"  kvd serve --data /var/lib/kvd-repaired\n" +
			"  kvd repair --range /var/lib/kvd --dry-run\n" +
			"  kvd repair --range /var/lib/kvd --aside /var/tmp/damaged --from-backup /backups/orders",
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if inPlace.on {
			return needs("DIR")(cmd, args)
		}
		return needs("SRC", "DST")(cmd, args)
	}
	inPlace.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	cmd.Flags().StringVar(&reportFile, "report", "", "also write the report as JSON to this file, which must not exist")
	cmd.Flags().IntVar(&o.Partitions, "partitions", 0, "partitions of a store that has lost its file STORE (default: derived from directories and keys)")
	cmd.Flags().StringVar(&fromBackup, "from-backup", "", "fill ranges of keys in which anything may be missing from this backup")
	cmd.MarkFlagsMutuallyExclusive("range", "partitions")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := inPlace.check(a); err != nil {
			return err
		}
		if inPlace.on {
			return a.repairInPlace(cmd.Context(), args[0], &inPlace, fromBackup, asJSON, reportFile)
		}
		if o.Partitions < 0 || o.Partitions > descriptor.MaxPartitions {
			return usagef("--partitions is %d, want 1 to %d", o.Partitions, descriptor.MaxPartitions)
		}
		src, dst, err := separate(args[0], args[1])
		if err != nil {
			return err
		}
		if err := checkReport(reportFile); err != nil {
			return err
		}
		if fromBackup != "" {
			var remove func() error
			if o.Backup, remove, err = a.unpack(cmd.Context(), fromBackup, dst+".backup"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, remove()) }()
		}
		progress := startProgress(a.err, "bytes", 1)
		o.Progress = progress.update
		report, err := repair.Run(cmd.Context(), vfs.OS, src, dst, o)
		progress.close()
		if err != nil {
			return named(err)
		}
		err = a.tellRepair(report, asJSON, reportFile)
		if err == nil && report.Lost() {
			err = repairLost{report.Target + ": the new store is whole, but writes may be missing in it"}
		}
		return err
	}
	return cmd
}

// checkReport makes sure, before the repair, that the report can be written.
func checkReport(name string) error {
	if name == "" {
		return nil
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return usagef("%s exists, or cannot be looked at; give --report another name", name)
	}
	if info, err := os.Stat(filepath.Dir(name)); err != nil || !info.IsDir() {
		return usagef("--report %s: there is no directory %s", name, filepath.Dir(name))
	}
	return nil
}

// separate returns the real paths of the two directories, of which the second need not exist.
func separate(src, dst string) (string, string, error) {
	src, err := filepath.EvalSymlinks(src)
	if err == nil {
		src, err = filepath.Abs(src)
	}
	if err != nil {
		return "", "", named(err)
	}
	if dst, err = filepath.Abs(dst); err != nil {
		return "", "", err
	}
	return clean(src), clean(realPath(dst)), nil
}

// realPath returns an absolute path without symbolic links, as far as it exists.
func realPath(name string) string {
	rest := ""
	for at := name; ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return name
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// unpack returns the directory of a store with the contents of a backup: name itself, if that
// is one, or scratch, which remove removes.
func (a *app) unpack(ctx context.Context, name, scratch string) (dir string, remove func() error, err error) {
	if _, err := os.Stat(filepath.Join(name, descriptor.Name)); err == nil {
		return clean(name), func() error { return nil }, nil
	}
	if _, err := os.Lstat(scratch); !errors.Is(err, fs.ErrNotExist) {
		return "", nil, usagef("%s, to which the backup would be unpacked, exists; remove it", scratch)
	}
	source, err := a.openBackup(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer source.close()
	remove = func() error { return os.RemoveAll(scratch) }
	progress, o := a.backupProgress(0)
	_, _, err = new(restorePoint).restore(ctx, source, scratch, o)
	progress.close()
	if err != nil {
		if errors.Is(err, kv.ErrCorrupt) {
			err = ofBackupError{err}
		}
		return "", nil, errors.Join(err, remove())
	}
	return scratch, remove, nil
}

// tellRepair prints a report, and writes it to a file if that is given.
func (a *app) tellRepair(report *repair.Report, asJSON bool, file string) error {
	data, err := encodeReport(report)
	if err != nil {
		return err
	}
	if asJSON {
		_, err = a.out.Write(data)
	} else {
		err = report.Write(a.out)
	}
	return errors.Join(err, saveReport(report, file))
}

func encodeReport(report *repair.Report) ([]byte, error) {
	data, err := json.MarshalIndent(report, "", "  ")
	return append(data, '\n'), err
}

// saveReport writes a report to a file as JSON; it does nothing without a name.
func saveReport(report *repair.Report, name string) error {
	if name == "" {
		return nil
	}
	data, err := encodeReport(report)
	if err != nil {
		return err
	}
	if err := vfs.WriteNew(vfs.OS, clean(name), data); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}
