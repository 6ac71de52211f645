package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/repair"
	"github.com/kvd-db/kvd/internal/vfs"
)

// inPlaceRepair holds the flags of kvd repair --range.
type inPlaceRepair struct {
	on, dryRun, yes bool
	aside           string
}

func (r *inPlaceRepair) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.on, "range", false, "repair the damaged tables and value files of one store where they are")
	cmd.Flags().StringVar(&r.aside, "aside", "", "with --range: copy the files that are replaced to this directory; required unless --dry-run is given")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "with --range: verify the store, print what the repair would keep and lose, and change nothing in DIR")
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "with --range: do not ask for confirmation")
}

func (r *inPlaceRepair) check(a *app) error {
	switch {
	case !r.on && (r.aside != "" || r.dryRun || r.yes):
		return usagef("--aside, --dry-run and --yes are for kvd repair --range DIR; kvd repair SRC DST does not change SRC")
	case r.on && r.aside == "" && !r.dryRun:
		return usagef("give --aside with a new or empty directory for the files that are replaced, or --dry-run to see what the repair would do")
	case r.on && !r.dryRun && !r.yes && !isTerminal(a.in):
		return usagef("kvd repair --range asks before it changes the store, and there is no terminal; add --yes, or --dry-run to see what it would do")
	}
	return nil
}

// repairInPlace plans a repair, prints what it would do, asks, and does it.
func (a *app) repairInPlace(ctx context.Context, dir string, r *inPlaceRepair, fromBackup string, asJSON bool, file string) (err error) {
	if err := checkReport(file); err != nil {
		return err
	}
	aside := r.aside
	if aside == "" {
		if aside, err = os.MkdirTemp("", "kvd-repair-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.Remove(aside)) }()
	}
	if dir, aside, err = separate(dir, aside); err != nil {
		return err
	}
	o := repair.InPlaceOptions{Scratch: aside + ".scratch", PlanOnly: r.dryRun}
	if _, err := os.Lstat(o.Scratch); !errors.Is(err, fs.ErrNotExist) {
		return usagef("%s, which the repair needs meanwhile, exists; remove it", o.Scratch)
	}
	if err := checkAside(aside); err != nil {
		return err
	}
	if fromBackup != "" {
		var remove func() error
		if o.Backup, remove, err = a.unpack(ctx, fromBackup, aside+".backup"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
	}
	progress := startProgress(a.err, "bytes", 1)
	o.Progress = func(done, total int64) { progress.update(done, total) }
	plan, err := repair.PlanInPlace(ctx, vfs.OS, dir, o)
	progress.close()
	if err != nil {
		return named(err)
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	report := plan.Report()
	if report.Damaged() == 0 || r.dryRun {
		if err := a.tellRepair(report, asJSON, file); err != nil || !report.Lost() {
			return err
		}
		return repairLost{dir + ": nothing was changed; after the repair writes would be missing"}
	}
	shown := a.out
	if asJSON {
		shown = a.err
	}
	if err := report.Write(shown); err != nil {
		return err
	}
	if !r.yes {
		if err := a.confirm(ctx, "Repair the store?"); err != nil {
			return errNotAgreed
		}
	}
	progress = startProgress(a.err, "bytes", 1)
	err = plan.Apply(ctx, aside)
	progress.close()
	if err != nil {
		return named(err)
	}
	if asJSON {
		err = a.tellRepair(report, asJSON, file)
	} else {
		_, err = fmt.Fprintf(a.out, "repaired; the files that were replaced are in %s\n", aside)
		err = errors.Join(err, saveReport(report, file))
	}
	if err == nil && report.Lost() {
		err = repairLost{dir + ": the store is whole, but writes are missing in it"}
	}
	return err
}

// checkAside makes sure, before the store is read, that the directory can take the old files.
func checkAside(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if info, err := os.Stat(filepath.Dir(dir)); err != nil || !info.IsDir() {
			return usagef("--aside %s: there is no directory %s", dir, filepath.Dir(dir))
		}
		return nil
	case err != nil:
		return usagef("--aside %s is no directory that can be read: %v", dir, err)
	case len(entries) > 0:
		return usagef("--aside %s is not empty: it holds %s; give a new or empty directory", dir, entries[0].Name())
	}
	return nil
}

var errNotAgreed = errors.New("nothing was changed")
