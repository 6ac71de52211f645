package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/verify"
)

// openValues returns the value files of a partition, which are opened on demand.
func (c *checker) openValues(dir string, partition uint32) *valuefile.Set {
	return valuefile.NewSet(func(num kv.FileNum) (*valuefile.Reader, error) {
		return verify.OpenValues(c.fsys, path.Join(c.dir, dir, manifest.ValuesName(num)), kv.FileID{Partition: partition, Num: num})
	})
}

// Values are read in batches of at most batchValues, which end when they have batchBytes.
const (
	batchValues = 256
	batchBytes  = 4 << 20
)

// pointers reads every value that a table points to. Nothing else would detect a
// pointer to an intact record of another value.
func (c *checker) pointers(r *sstable.Reader, values *valuefile.Set) error {
	var fetches []valuefile.Fetch
	var bytes int64 // of the values of fetches
	var errs []error
	told := map[place]bool{}
	read := func() {
		values.ReadBatch(fetches)
		for i := range fetches {
			// Damage to a value file is recorded in the entry of that file too.
			if err := fetches[i].Err; err != nil && !errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			} else if at := placeOf(err); err != nil && len(errs) < maxPointerErrors && !told[at] {
				told[at] = true
				errs = append(errs, fmt.Errorf("its value at offset %d of value file %06d: %w", fetches[i].Pointer.Offset, fetches[i].Pointer.File, err))
			}
		}
		reuse(fetches[:cap(fetches)])
		fetches, bytes = fetches[:0], 0
	}
	it := r.NewIterator(sstable.IterOptions{})
	for more := it.First(); more && c.ctx.Err() == nil; more = it.Next() {
		if e := it.Entry(); e.Apart {
			p, _ := kv.ParseValuePointer(e.Value) // validated by the iterator
			n := len(fetches)
			fetches = slices.Grow(fetches, 1)[:n+1] // with the buffer of an earlier value
			fetches[n].Pointer, fetches[n].Err = p, nil
			bytes += int64(p.Length)
		}
		if len(fetches) == batchValues || bytes >= batchBytes {
			read()
		}
	}
	if len(fetches) > 0 {
		read()
	}
	return errors.Join(append(errs, it.Close())...)
}

// reuse leaves to the next batch the buffers of those that were read, up to batchBytes and the first one.
func reuse(fetches []valuefile.Fetch) {
	kept := 0
	for i := range fetches {
		if kept += cap(fetches[i].Value); i > 0 && kept > batchBytes {
			fetches[i].Value = nil
		}
	}
}

// place is where a value file is damaged. Many values may be unreadable for one place: if the
// file has no footer, all of them.
type place struct {
	file   string
	offset int64
}

func placeOf(err error) place {
	if damage, ok := errors.AsType[*kv.CorruptionError](err); ok {
		return place{damage.File, damage.Offset}
	}
	return place{}
}

// maxPointerErrors bounds the errors reported for one table.
const maxPointerErrors = 16

// valueFiles reads all value files that a version names, including their garbage.
func (c *checker) valueFiles(dir string, partition uint32, v *manifest.Version) error {
	needed := v.NeededValues()
	for i := range v.Values {
		m := &v.Values[i]
		f := c.file(path.Join(dir, manifest.ValuesName(m.Num)), KindValues)
		c.report.ValueFiles++
		c.report.Garbage += m.Bytes - needed[m.Num].Bytes
		if err := c.found(f, c.valueFile(f, partition, m)); err != nil {
			return err
		}
	}
	return nil
}

// valueFile verifies a value file.
func (c *checker) valueFile(entry *File, partition uint32, want *kv.ValueFileMeta) error {
	left := entry.Bytes
	defer func() { c.advance(left) }()
	return verify.Values(c.ctx, c.fsys, path.Join(c.dir, entry.Path), partition, want, func(bytes int64) {
		c.advance(bytes)
		left -= bytes
	})
}
