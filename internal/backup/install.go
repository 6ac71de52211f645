package backup

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Installed describes a checkpoint that was received: what Install puts in the place of the
// partitions.
type Installed struct {
	*Manifest
	// Partitions are the file lists of the partitions, in their order.
	Partitions []*manifest.Version
}

// Received returns what Receive has completed in a data directory, also if an Install of it was
// interrupted.
//
// Errors: fs.ErrNotExist if there is none; a *kv.CorruptionError if a manifest is damaged.
func Received(fsys vfs.FS, dir string) (*Installed, error) {
	m, err := readManifest(fsys, path.Join(incomingDir(dir), completeName))
	if err != nil {
		return nil, err
	}
	all := &Installed{Manifest: m}
	for i := range m.Files {
		name := m.Files[i].Name
		if kind, _ := manifest.ParseName(path.Base(name)); kind != manifest.FileManifest {
			continue
		}
		b, err := readFile(fsys, path.Join(incomingDir(dir), name), maxManifest)
		if errors.Is(err, fs.ErrNotExist) { // Install has moved it
			b, err = readFile(fsys, path.Join(dir, name), maxManifest)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, kv.Corruptf(path.Join(incomingDir(dir), name), -1, "the file is missing")
		}
		if err != nil {
			return nil, err
		}
		v, err := manifest.DecodeManifest(name, b)
		if err != nil {
			return nil, err
		}
		all.Partitions = append(all.Partitions, v)
	}
	slices.SortFunc(all.Partitions, func(a, b *manifest.Version) int { return int(a.Partition) - int(b.Partition) })
	for i, v := range all.Partitions {
		if int(v.Partition) != i {
			return nil, kv.Corruptf(path.Join(incomingDir(dir), completeName), -1, "the files of partition %d are not listed, or are twice", i)
		}
	}
	return all, nil
}

// Install puts the partitions of what was received in the place of those of the store in a data
// directory, and removes incoming. What is the node's own stays: STORE, CLOCK, NODE and the log.
// No process has the store open, and it must not be opened before Install has returned nil: after
// an error or a crash Install is repeated. A file of the partitions that is not in incoming was
// moved before, so an Install that was interrupted continues.
//
// Errors: those of Received and of the file system; a *kv.CorruptionError if a file is missing or
// has not its length.
func (in *Installed) Install(fsys vfs.FS, dir string) error {
	listed := map[string]map[string]bool{} // base names by partition
	for i := range in.Files {
		f := &in.Files[i]
		sub, base := path.Split(f.Name)
		sub = path.Clean(sub)
		if _, ok := descriptor.ParsePartition(sub); !ok {
			continue
		}
		if listed[sub] == nil {
			listed[sub] = map[string]bool{}
		}
		listed[sub][base] = true
		if err := installFile(fsys, path.Join(incomingDir(dir), f.Name), path.Join(dir, f.Name), f); err != nil {
			return err
		}
	}
	for sub, names := range listed {
		if err := removeOthers(fsys, path.Join(dir, sub), names); err != nil {
			return err
		}
		for _, d := range []string{path.Join(dir, sub), path.Join(incomingDir(dir), sub)} {
			if err := fsys.SyncDir(d); err != nil {
				return err
			}
		}
	}
	return RemoveIncoming(fsys, dir)
}

// installFile moves a file, unless that was done before: then the file that has its place has its
// contents.
func installFile(fsys vfs.FS, from, to string, f *ManifestFile) error {
	switch info, err := fsys.Stat(from); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Size() != f.Size:
		return kv.Corruptf(from, -1, "%d bytes, want %d", info.Size(), f.Size)
	default:
		return vfs.Move(fsys, from, to)
	}
	r := &receiver{ctx: context.Background(), fsys: fsys, local: newTransfer(Options{}, 0)}
	sum, same, err := r.sum(to, f.Size)
	if err == nil && (!same || hex64(sum) != f.Sum) {
		err = kv.Corruptf(from, -1, "the file is missing")
	}
	return err
}

// removeOthers removes the files in a directory that are not listed: those of the old store.
func removeOthers(fsys vfs.FS, dir string, listed map[string]bool) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := fsys.Stat(path.Join(dir, name))
		if err != nil {
			return err
		}
		if listed[name] || info.IsDir() { // lost+found stays
			continue
		}
		if err := fsys.Remove(path.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
