package inspect

import (
	"errors"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/verify"
)

// partition checks CURRENT, the manifest that it names, and the tables and value files
// that the manifest names.
func (c *checker) partition(id int) error {
	dir := descriptor.PartitionDir("", id)
	marker := c.file(path.Join(dir, manifest.CurrentName), KindMarker)
	num, err := c.marker(marker.Path, uint32(id))
	c.advance(marker.Bytes)
	if err != nil {
		c.notCheckedIn(dir)
		return c.found(marker, err)
	}
	file := c.file(path.Join(dir, manifest.ManifestName(num)), KindManifest)
	version, err := c.manifest(file.Path, uint32(id), num)
	c.advance(file.Bytes)
	if err != nil {
		c.notCheckedIn(dir)
		return c.found(file, err)
	}
	c.flushedUpTo = max(c.flushedUpTo, version.FlushedSeq)
	c.report.LastSeq = max(c.report.LastSeq, version.MaxSeq)
	values := c.openValues(dir, uint32(id))
	for _, run := range version.Deltas {
		if err := c.run(dir, uint32(id), run, KindDelta, values); err != nil {
			return errors.Join(err, values.Close())
		}
	}
	if err := errors.Join(c.run(dir, uint32(id), version.Base, KindBase, values), values.Close()); err != nil {
		return err
	}
	if err := c.valueFiles(dir, uint32(id), version); err != nil {
		return err
	}
	c.noteUnused(dir)
	return nil
}

// notCheckedIn notes the files of a partition whose file list cannot be read. Only that tells which of
// them the store needs, and what they hold.
func (c *checker) notCheckedIn(dir string) {
	for name, f := range c.files {
		if path.Dir(name) != dir || f.Kind != KindOther {
			continue
		}
		switch kind, _ := manifest.ParseName(path.Base(name)); kind {
		case manifest.FileTable, manifest.FileValues, manifest.FileManifest:
			f.notChecked("the file list of its partition cannot be read")
		}
	}
}

// marker returns the number of the manifest that CURRENT names.
func (c *checker) marker(name string, partition uint32) (kv.FileNum, error) {
	name = path.Join(c.dir, name)
	data, err := readSmall(c.fsys, name)
	if err != nil {
		return 0, err
	}
	owner, num, err := manifest.DecodeCurrent(name, data)
	if err == nil && owner != partition {
		err = kv.Corruptf(name, 0, "belongs to partition %d, not %d", owner, partition)
	}
	return num, err
}

func (c *checker) manifest(name string, partition uint32, num kv.FileNum) (*manifest.Version, error) {
	name = path.Join(c.dir, name)
	data, err := readSmall(c.fsys, name)
	if err != nil {
		return nil, err
	}
	v, err := manifest.DecodeManifest(name, data)
	if err == nil && (v.Partition != partition || v.Num != num) {
		err = kv.Corruptf(name, 0, "is manifest %d of partition %d, want %d of %d", v.Num, v.Partition, num, partition)
	}
	return v, err
}

func (c *checker) run(dir string, partition uint32, run manifest.Run, kind Kind, values *valuefile.Set) error {
	for i := range run {
		f := c.file(path.Join(dir, manifest.TableName(run[i].Num)), kind)
		c.report.Tables++
		c.report.Entries += run[i].Entries
		if err := c.found(f, c.table(f, partition, &run[i], values)); err != nil {
			return err
		}
	}
	return nil
}

// table verifies a table and reads each value that it points to.
func (c *checker) table(entry *File, partition uint32, want *kv.TableMeta, values *valuefile.Set) error {
	left := entry.Bytes
	defer func() { c.advance(left) }()
	progress := func(bytes int64) {
		c.advance(bytes)
		left -= bytes
	}
	return verify.Table(c.ctx, c.fsys, path.Join(c.dir, entry.Path), partition, want, progress, func(r *sstable.Reader) error {
		if len(want.Values) == 0 {
			return nil
		}
		return c.pointers(r, values)
	})
}

// noteUnused notes, for each file that the manifest does not name, what the next open
// will do with it.
func (c *checker) noteUnused(dir string) {
	for name, f := range c.files {
		if path.Dir(name) != dir || f.Kind != KindOther {
			continue
		}
		switch kind, _ := manifest.ParseName(path.Base(name)); kind {
		case manifest.FileTable, manifest.FileValues, manifest.FileManifest, manifest.FileTemp:
			f.Note = "not in use; the next open removes it or sets it aside"
		case manifest.FileUnknown:
			f.Note = "not ours; the next open moves it to lost+found"
		}
	}
}
