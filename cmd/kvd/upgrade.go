package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/formats"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
)

func (a *app) upgradeCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "upgrade DIR",
		Short: "Report the formats of the files of a stopped store, and rewrite old ones",
		Long: "Report, for each kind of file of a stopped store, the format versions that the store\n" +
			"has and those that this kvd reads and writes, and rewrite the files of which this kvd\n" +
			"writes a newer version only. With --dry-run the command changes nothing.\n\n" +
			"A store needs no upgrade to be served: kvd reads all old versions. After an upgrade no\n" +
			"old version is left, and an older kvd may refuse the store (exit code 65); back it up\n" +
			"first. An upgrade that is interrupted leaves a store that is whole; repeat it.\n\n" +
			"Exit codes: 0 nothing is left to upgrade, or --dry-run; 65 a file is damaged or of a\n" +
			"newer version; 74 the disk failed; 75 a process has the store open.",
		Example: "  kvd upgrade /var/lib/kvd --dry-run",
		Args:    needs("DIR"),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only report")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir := path.Clean(args[0])
		files, err := surveyStopped(dir)
		if err != nil {
			return err
		}
		if err := printFormats(a.out, files); err != nil {
			return err
		}
		outdated, err := toUpgrade(files)
		if err == nil {
			err = checkHeaders(dir, files)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s cannot be upgraded; nothing was changed: %w", dir, err)
		case outdated == 0:
			_, err := fmt.Fprintf(a.out, "\n%s: nothing to upgrade\n", dir)
			return err
		case dryRun:
			_, err := fmt.Fprintf(a.out, "\n%s: %d files would be rewritten\n", dir, outdated)
			return err
		}
		progress := startProgress(a.err, "files", 0)
		err = upgrade(cmd.Context(), dir)
		progress.close()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "\n%s: upgraded\n", dir)
		return err
	}
	return cmd
}

// surveyStopped returns the files of a store that no process has open to write.
func surveyStopped(dir string) (_ []formats.File, err error) {
	lock, err := descriptor.LockShared(vfs.OS, dir)
	if err != nil {
		return nil, named(fmt.Errorf("upgrade %s: %w", dir, err))
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	files, err := formats.Survey(vfs.OS, dir)
	return files, named(err)
}

// toUpgrade returns the number of files of an old version. Its error names all files that this
// kvd cannot read. A segment of the log without a header may be left by a crash, so opening
// the store decides about that.
func toUpgrade(files []formats.File) (outdated int, err error) {
	for i := range files {
		switch f := &files[i]; {
		case f.Unknown():
			err = errors.Join(err, fmt.Errorf("%w: %s has format %d", kv.ErrUnsupportedVersion, f.Path, f.Version))
		case f.Err != nil && f.Kind != formats.Log && f.Kind != formats.Replicated:
			err = errors.Join(err, f.Err)
		case f.Outdated():
			outdated++
		}
	}
	return outdated, err
}

// checkHeaders reads the log if the header of one of its segments cannot be read, as opening the
// store would: such a segment may be left by a crash, or damaged.
func checkHeaders(dir string, files []formats.File) (err error) {
	unread := func(kind *formats.Kind) bool {
		return slices.ContainsFunc(files, func(f formats.File) bool { return f.Kind == kind && f.Err != nil })
	}
	if !unread(formats.Log) && !unread(formats.Replicated) {
		return nil
	}
	lock, err := descriptor.LockShared(vfs.OS, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	d, err := descriptor.Read(vfs.OS, dir)
	if err != nil {
		return err
	}
	if unread(formats.Log) {
		report, err := wal.Verify(vfs.OS, descriptor.LogDir(dir), d.StoreID, func(wal.Record) error { return nil })
		if err != nil || report.Problem != nil {
			return errors.Join(err, report.Problem)
		}
	}
	if !unread(formats.Replicated) {
		return nil
	}
	node, err := descriptor.ReadNode(vfs.OS, dir, d.StoreID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // left by a kvd cluster init that was interrupted
	}
	if err == nil {
		_, err = replicated.CheckLog(vfs.OS, descriptor.LogDir(dir), &node)
	}
	return err
}

// upgrade rewrites outdated files. Opening a store rewrites CLOCK and begins a new segment of
// the log; what the segments before it hold goes into tables.
func upgrade(ctx context.Context, dir string) error {
	e, err := engine.Open(dir, engine.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(e.RewriteLog(ctx), e.Close()); err != nil {
		return fmt.Errorf("upgrade %s: the store is whole; repeat the command: %w", dir, err)
	}
	files, err := surveyStopped(dir)
	if err != nil {
		return err
	}
	if left, err := toUpgrade(files); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("upgrade %s: %d files still have an old format; is the disk full? The store is whole; repeat the command", dir, left), err)
	}
	return nil
}

// printFormats prints a line for each version of each kind of file, and one for each file whose
// version cannot be read or that is damaged.
func printFormats(w io.Writer, files []formats.File) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KIND\tFORMAT\tFILES\tBYTES\tREADS\tWRITES\tSTATUS")
	for _, kind := range formats.Kinds {
		ofVersion := map[uint32][]formats.File{}
		for i := range files {
			if f := files[i]; f.Kind == kind && f.Err == nil {
				ofVersion[f.Version] = append(ofVersion[f.Version], f)
			}
		}
		for _, version := range slices.Sorted(maps.Keys(ofVersion)) {
			group, bytes := ofVersion[version], int64(0)
			for i := range group {
				bytes += group[i].Bytes
			}
			format, status := formatStatus(&group[0])
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%s\t%s\n", kind.Name, format, len(group), bytes,
				spellVersions(kind.Oldest, kind.Newest), spellVersions(kind.Writes, kind.Newest), status)
		}
		for i := range files {
			if f := &files[i]; f.Kind == kind && f.Err != nil {
				fmt.Fprintf(t, "%s\t?\t1\t%d\t%s\t%s\t%v\n", kind.Name, f.Bytes, spellVersions(kind.Oldest, kind.Newest), spellVersions(kind.Writes, kind.Newest), f.Err)
			}
		}
	}
	return t.Flush()
}

func spellVersions(from, to uint32) string {
	if from == to {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d to %d", from, to)
}

func formatStatus(f *formats.File) (format, status string) {
	switch {
	case f.Unknown():
		status = "this kvd cannot read it"
	case f.Outdated():
		status = "old, to be rewritten"
	default:
		status = "ok"
	}
	return fmt.Sprint(f.Version), status
}
