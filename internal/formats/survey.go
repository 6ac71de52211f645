package formats

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// File is one file of a store.
type File struct {
	Kind    *Kind
	Path    string // in the data directory
	Bytes   int64
	Version uint32 // of its format; 0: see Err
	Err     error  // why the version cannot be read: a *kv.CorruptionError
}

// Unknown reports whether this kvd cannot read the version.
func (f *File) Unknown() bool {
	return f.Err == nil && (f.Version < f.Kind.Oldest || f.Version > f.Kind.Newest)
}

// Outdated reports whether the version is one that this kvd reads and does not write.
func (f *File) Outdated() bool { return f.Err == nil && !f.Unknown() && f.Version < f.Kind.Writes }

// Survey returns the files that the store in dir consists of, with their versions. It reads
// a few bytes of each, and changes nothing. Files that the store does not need are left out.
// What a file of an unknown or unreadable version would name is left out too.
//
// Errors: fs.ErrNotExist if dir has no STORE; those of the file system.
func Survey(fsys vfs.FS, dir string) ([]File, error) {
	s := survey{fsys: fsys, dir: path.Clean(dir)}
	if _, err := fsys.Stat(descriptor.Path(s.dir)); err != nil {
		return nil, fmt.Errorf("no store is in %s: %w", s.dir, err)
	}
	if err := s.store(); err != nil {
		return nil, fmt.Errorf("read the formats of %s: %w", s.dir, err)
	}
	return s.files, nil
}

// Check returns kv.ErrUnsupportedVersion if this kvd cannot read a file of the store in dir.
// Damage, and that there is no store, is left to who opens it. Other errors are those of the
// file system.
func Check(fsys vfs.FS, dir string) error {
	files, err := Survey(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range files {
		if f := &files[i]; f.Unknown() {
			return fmt.Errorf("%w: %s has format %d of a %s, this kvd reads %d to %d", kv.ErrUnsupportedVersion,
				path.Join(dir, f.Path), f.Version, f.Kind.Name, f.Kind.Oldest, f.Kind.Newest)
		}
	}
	return nil
}

type survey struct {
	fsys  vfs.FS
	dir   string
	files []File
}

func (s *survey) store() error {
	if known, err := s.add(Store, descriptor.Name); err != nil || !known {
		return err // the version of STORE decides alone
	}
	names, err := s.fsys.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := descriptor.ParsePartition(name); ok {
			err = s.partition(name, uint32(id))
		} else if name == descriptor.ClockName {
			_, err = s.add(Clock, name)
		} else if name == descriptor.NodeName {
			_, err = s.add(Node, name)
		} else if name == descriptor.LogName {
			err = s.log()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// log adds the segments that have a header. One without may be left by a crash; whether it
// may be is for recovery to decide.
func (s *survey) log() error {
	names, err := s.fsys.List(path.Join(s.dir, descriptor.LogName))
	if err != nil {
		return err
	}
	for _, name := range names {
		kind := Log
		if descriptor.IsReplicatedSegment(name) {
			kind = Replicated
		} else if !strings.HasSuffix(name, ".wal") {
			continue
		}
		if _, err := s.add(kind, path.Join(descriptor.LogName, name)); err != nil {
			return err
		}
	}
	return nil
}

// partition adds CURRENT, the manifest that it names, and the files that the manifest names.
func (s *survey) partition(dir string, id uint32) error {
	if known, err := s.add(Current, path.Join(dir, manifest.CurrentName)); err != nil || !known {
		return err
	}
	num, err := manifest.LoadCurrent(s.fsys, path.Join(s.dir, dir), id)
	if damaged, err := s.damage(err); damaged || err != nil {
		return err
	}
	if known, err := s.add(Manifest, path.Join(dir, manifest.ManifestName(num))); err != nil || !known {
		return err
	}
	v, err := manifest.LoadVersion(s.fsys, path.Join(s.dir, dir), id)
	if damaged, err := s.damage(err); damaged || err != nil {
		return err
	}
	for t := range v.Tables() {
		if _, err := s.add(Table, path.Join(dir, manifest.TableName(t.Num))); err != nil {
			return err
		}
	}
	for i := range v.Values {
		if _, err := s.add(Values, path.Join(dir, manifest.ValuesName(v.Values[i].Num))); err != nil {
			return err
		}
	}
	return nil
}

// damage records the error of the file that was added last, if it is damage.
func (s *survey) damage(err error) (damaged bool, _ error) {
	if !errors.Is(err, kv.ErrCorrupt) {
		return false, err
	}
	s.files[len(s.files)-1].Err = err
	return true, nil
}

// add adds a file. known reports whether this kvd can read it, as far as its version tells.
func (s *survey) add(kind *Kind, name string) (known bool, err error) {
	s.files = append(s.files, File{Kind: kind, Path: name})
	f := &s.files[len(s.files)-1]
	full := path.Join(s.dir, name)
	part, size, err := readPart(s.fsys, full, kind)
	if errors.Is(err, fs.ErrNotExist) {
		f.Err = kv.Corruptf(full, -1, "file is missing")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.Bytes = size
	f.Version, f.Err = kind.formatOf(full, part)
	return f.Err == nil && !f.Unknown(), nil
}

// readPart returns the part of a file that has its version, and the size of the file.
func readPart(fsys vfs.FS, name string, kind *Kind) (part []byte, size int64, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err = f.Size(); err != nil {
		return nil, 0, err
	}
	part = make([]byte, min(size, kind.bytes))
	var at int64
	if kind.fromEnd {
		at = size - int64(len(part))
	}
	n, err := f.ReadAt(part, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read %s: %w", name, err)
	}
	return part[:n], size, nil
}
