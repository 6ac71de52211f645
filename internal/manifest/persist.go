package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Load reads the current Version of the partition in dir, and checks that each
// of its files exists with the right size. It changes nothing.
//
// Errors: a *kv.CorruptionError if CURRENT, its manifest or a file is missing
// or not what was written, so that Load never returns less than the
// last published Version. kv.ErrUnsupportedVersion if a newer kvd wrote it.
// Cost: two small reads, and one Stat of each file.
func Load(fsys vfs.FS, dir string, partition uint32) (*Version, error) {
	v, err := LoadVersion(fsys, dir, partition)
	if err != nil {
		return nil, err
	}
	return v, v.checkFiles(fsys, dir)
}

// checkFiles checks that each file of v exists with the right size.
func (v *Version) checkFiles(fsys vfs.FS, dir string) error {
	for t := range v.Tables() {
		if err := checkFile(fsys, path.Join(dir, TableName(t.Num)), FileTable, t.Size); err != nil {
			return err
		}
	}
	for i := range v.Values {
		m := &v.Values[i]
		if err := checkFile(fsys, path.Join(dir, ValuesName(m.Num)), FileValues, m.Size); err != nil {
			return err
		}
	}
	return nil
}

// isMissing reports whether a file of v is not there.
func (v *Version) isMissing(fsys vfs.FS, dir string) bool {
	for kind, num := range v.Files() {
		name := TableName(num)
		if kind == FileValues {
			name = ValuesName(num)
		}
		if _, err := fsys.Stat(path.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// LoadCurrent returns the number of the current manifest of the partition in dir.
//
// Errors: as of Load.
func LoadCurrent(fsys vfs.FS, dir string, partition uint32) (kv.FileNum, error) {
	name := path.Join(dir, CurrentName)
	data, err := readFile(fsys, name, maxCurrent)
	if err != nil {
		return 0, err
	}
	owner, num, err := DecodeCurrent(name, data)
	if err == nil && owner != partition {
		err = kv.Corruptf(name, 0, "belongs to partition %d, not %d", owner, partition)
	}
	return num, err
}

// LoadVersion is Load without a look at the files of the Version.
func LoadVersion(fsys vfs.FS, dir string, partition uint32) (*Version, error) {
	num, err := LoadCurrent(fsys, dir, partition)
	if err != nil {
		return nil, err
	}
	name := path.Join(dir, ManifestName(num))
	data, err := readFile(fsys, name, maxManifest)
	if err != nil {
		if _, gone := fsys.Stat(name); errors.Is(gone, fs.ErrNotExist) {
			return nil, kv.Corruptf(path.Join(dir, CurrentName), -1, "names %s, which is missing: it was lost, or CURRENT is an older copy", name)
		}
		return nil, err
	}
	v, err := DecodeManifest(name, data)
	if err != nil {
		return nil, err
	}
	if v.Partition != partition || v.Num != num {
		return nil, kv.Corruptf(name, 16, "is manifest %d of partition %d, want %d of %d", v.Num, v.Partition, num, partition)
	}
	return v, nil
}

// checkFile returns an error unless a file that the manifest names exists with its
// size.
func checkFile(fsys vfs.FS, name string, kind FileKind, size uint64) error {
	info, err := fsys.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return kv.Corruptf(name, -1, "%s is missing; the manifest names it", kind)
	case err != nil:
		return err
	case info.IsDir() || info.Size() != int64(size):
		return kv.Corruptf(name, -1, "%s has %d bytes, the manifest says %d", kind, info.Size(), size)
	}
	return nil
}

// readFile returns the content of a file, which must exist and have at most limit bytes.
func readFile(fsys vfs.FS, name string, limit int64) (data []byte, err error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, kv.Corruptf(name, -1, "file is missing")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, kv.Corruptf(name, -1, "%d bytes, want at most %d", size, limit)
	}
	data = make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		if err == io.EOF {
			return nil, kv.Corruptf(name, int64(n), "file ends before its %d bytes", size)
		}
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

// publish makes v the current Version on disk; see the package comment. After an
// error either v or its predecessor is current.
func publish(fsys vfs.FS, dir string, v *Version) error {
	data := appendManifest(nil, v)
	if len(data) > maxManifest {
		return fmt.Errorf("%w: %s would have %d bytes, limit is %d", kv.ErrTooLarge, ManifestName(v.Num), len(data), maxManifest)
	}
	// WriteAtomic ends with a sync of the directory. That makes the names of v's
	// new tables durable too, before CURRENT points to them.
	if err := vfs.WriteAtomic(fsys, path.Join(dir, ManifestName(v.Num)), data); err != nil {
		return err
	}
	return vfs.WriteAtomic(fsys, path.Join(dir, CurrentName), encodeCurrent(v.Partition, v.Num))
}

// Create makes dir the directory of a partition without tables. It may be called
// again after a crash or an error at any point. An existing partition stays unchanged.
//
// The parent of dir must exist. Errors: a *kv.CorruptionError if dir holds a
// partition that has lost its CURRENT.
func Create(fsys vfs.FS, dir string, partition uint32) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	if err := fsys.SyncDir(path.Dir(path.Clean(dir))); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	if slices.Contains(names, CurrentName) {
		_, err := Load(fsys, dir, partition)
		return err
	}
	for _, name := range names {
		switch kind, num := ParseName(name); {
		case kind == FileTable, kind == FileValues, kind == FileManifest && num != firstManifest:
			return kv.Corruptf(path.Join(dir, CurrentName), -1, "file is missing, but %s is there", name)
		}
	}
	// The first manifest may exist, from a Create that ended before CURRENT.
	return publish(fsys, dir, &Version{Num: firstManifest, Partition: partition, NextFile: firstManifest + reservedNums})
}

// Unused reports whether a directory holds nothing but what an unfinished Create, or one that was
// complete, leaves there.
func Unused(fsys vfs.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		kind, num := ParseName(name)
		switch kind {
		case FileCurrent:
			return false
		case FileManifest:
			return num != firstManifest
		case FileTemp:
			return num > firstManifest
		}
		return true
	}), nil
}

// RemoveUnused removes a directory for which Unused reports true. After an error it can be called
// again. The caller syncs the parent.
func RemoveUnused(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fsys.Remove(path.Join(dir, name)); err != nil {
			return err
		}
	}
	return fsys.Remove(dir)
}

const (
	// firstManifest is the number of the first file of a partition.
	firstManifest kv.FileNum = 1
	// reservedNums is how far NextFile is set above the numbers in use. A crash
	// skips at most that many numbers, of 2^64. Guessed: more than the tables of
	// one large compaction.
	reservedNums kv.FileNum = 1000
)

// Encode returns the files that record v: the name and the content of its manifest, and the
// content of CURRENT.
func (v *Version) Encode() (name string, data, current []byte) {
	return ManifestName(v.Num), appendManifest(nil, v), encodeCurrent(v.Partition, v.Num)
}
