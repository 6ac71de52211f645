package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// ReportName is the report that Apply leaves beside the files that it copied.
const ReportName = "report.json"

// Apply does what Report says. Every file that it removes from the store is first copied to the
// directory aside, which is new or empty and outside the store, with the list of files of its
// partition and the report. To undo the repair, put the files back.
//
// Errors: kv.ErrInvalidArgument if aside is not empty; those of the file system; that of ctx. After
// an error each partition is as it was or repaired, and the report in aside says what was planned.
func (s *InPlace) Apply(ctx context.Context, aside string) error {
	s.ctx = ctx
	keep, err := beginAside(s.out.fsys, aside, s.dir)
	if err != nil {
		return fmt.Errorf("repair %s in place: %w", s.dir, err)
	}
	s.report.InPlace.Aside = aside
	if err := s.writeReport(aside); err != nil {
		return fmt.Errorf("repair %s in place: %w", s.dir, err)
	}
	for i, p := range s.places {
		if err := p.apply(keep); err != nil {
			return fmt.Errorf("repair %s in place: partition %d: %w; %d of %d damaged partitions are repaired. Repair again, with another directory for the old files",
				s.dir, p.id, err, i, len(s.places))
		}
	}
	s.report.InPlace.Done = true
	return s.writeReport(aside)
}

func (s *InPlace) writeReport(aside string) error {
	data, err := json.MarshalIndent(&s.report, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteAtomic(s.out.fsys, path.Join(aside, ReportName), append(data, '\n'))
}

// inside reports whether a directory is another one or lies in it.
func inside(dir, other string) bool {
	return dir == other || other == "." && !path.IsAbs(dir) || strings.HasPrefix(dir, strings.TrimSuffix(other, "/")+"/")
}

func errInside(dir string) error {
	return fmt.Errorf("%w: %s lies in the damaged store; give a directory elsewhere", kv.ErrInvalidArgument, dir)
}

// beginAside makes the directory for the old files, or takes an empty one.
func beginAside(fsys vfs.FS, dir, store string) (*target, error) {
	if inside(dir, store) {
		return nil, errInside(dir)
	}
	names, err := fsys.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if name != "lost+found" {
			return nil, fmt.Errorf("%w: %s is not empty: it holds %s; give a new or empty directory", kv.ErrInvalidArgument, dir, name)
		}
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	if err := vfs.SyncParents(fsys, dir); err != nil {
		return nil, err
	}
	return &target{fsys: fsys, dir: dir}, nil
}

// apply replaces the tables of the partition.
func (p *damagedPart) apply(keep *target) error {
	fsys := p.out.fsys
	var obsolete []string
	set, err := manifest.Open(manifest.Options{
		FS: fsys, Dir: p.store, Partition: uint32(p.id), AllowDamaged: true,
		Obsolete: func(kind manifest.FileKind, num kv.FileNum) { obsolete = append(obsolete, fileName(kind, num)) },
	})
	if err != nil {
		return err
	}
	to := *p.part
	to.dir, to.reserved = p.store, nil
	for range len(p.rewrites) + 1 { // and a value file
		num, err := set.NewFileNum()
		if err != nil {
			return err
		}
		to.reserved = append(to.reserved, num)
	}
	b := &build{damagedPart: p, to: &to}
	if err := b.run(); err != nil {
		return err
	}
	edit := b.edit()
	now := set.Acquire() // it has a higher NextFile
	err = p.keepOld(keep, now.Version, edit)
	now.Release()
	if err != nil {
		return err
	}
	if err := set.Install(edit); err != nil {
		return err
	}
	for _, name := range obsolete {
		if err := vfs.RemoveIfThere(fsys, path.Join(p.store, name)); err != nil {
			return err
		}
	}
	return fsys.SyncDir(p.store)
}

func fileName(kind manifest.FileKind, num kv.FileNum) string {
	if kind == manifest.FileValues {
		return manifest.ValuesName(num)
	}
	return manifest.TableName(num)
}

// keepOld copies what the edit removes, and the present list of files.
func (p *damagedPart) keepOld(keep *target, v *manifest.Version, edit manifest.Edit) error {
	next, err := v.Apply(edit)
	if err != nil {
		return err
	}
	stays := map[kv.FileNum]bool{}
	for _, num := range next.Files() {
		stays[num] = true
	}
	names := []string{manifest.CurrentName, manifest.ManifestName(v.Num)}
	for kind, num := range v.Files() {
		if !stays[num] {
			names = append(names, fileName(kind, num))
		}
	}
	dir := path.Join(keep.dir, p.in)
	if err := keep.fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, name := range names {
		err := keep.copy(p.src, p.source(name), path.Join(dir, name), p.read)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s to %s: %w", p.source(name), dir, err)
		}
	}
	return errors.Join(keep.fsys.SyncDir(dir), keep.fsys.SyncDir(keep.dir))
}
