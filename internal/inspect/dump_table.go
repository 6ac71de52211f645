package inspect

import (
	"errors"
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/verify"
)

// table prints every version of every key of a table, in the order of the file.
func (d *dumper) table(num kv.FileNum) (err error) {
	dir := path.Base(path.Dir(d.name))
	partition, ok := descriptor.ParsePartition(dir)
	if !ok {
		return fmt.Errorf("%w: a table is read where it lies, in the directory of its partition (p-0003/%s): "+
			"its checksums cover the partition", kv.ErrInvalidArgument, path.Base(d.name))
	}
	f, err := d.fsys.Open(d.name)
	if err != nil {
		return err
	}
	r, err := sstable.Open(f, kv.FileID{Partition: uint32(partition), Num: num}, nil)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	meta := r.Meta()
	d.Printf("table %d of partition %d\n  %s\n", meta.Num, partition, verify.DescribeTable(&meta))
	if s := r.Stats(); !s.None() {
		d.Printf("  %d older versions; %d expire, at %d\n", s.Shadowed, s.Expiring, s.Expiries)
	}
	if n := r.Padding(); n > 0 {
		d.Printf("  %d bytes of padding, which keep blocks within pages\n", n)
	}
	it := r.NewIterator(sstable.IterOptions{})
	for more := it.First(); more; more = it.Next() {
		e := it.Entry()
		if p, ok := kv.ParseValuePointer(e.Value); e.Apart && ok {
			d.separated(e, p)
			continue
		}
		d.entry(e.Seq, e.Kind, e.Key, e.Value, e.Expiry)
	}
	return it.Close()
}
