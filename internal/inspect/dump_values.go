package inspect

import (
	"errors"
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/verify"
)

// values prints every value of a value file, including garbage, in the order of the
// file. Only the tables know which key a value belongs to.
func (d *dumper) values(num kv.FileNum) (err error) {
	partition, ok := descriptor.ParsePartition(path.Base(path.Dir(d.name)))
	if !ok {
		return fmt.Errorf("%w: a value file is read where it lies, in the directory of its partition (p-0003/%s): "+
			"its checksums cover the partition", kv.ErrInvalidArgument, path.Base(d.name))
	}
	r, err := verify.OpenValues(d.fsys, d.name, kv.FileID{Partition: uint32(partition), Num: num})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	meta := r.Meta()
	d.Printf("value file %d of partition %d\n  %s\n", num, partition, verify.DescribeValues(&meta))
	return r.Walk(func(p kv.ValuePointer, value []byte) error {
		d.Printf("%d %s\n", p.Offset, d.value(value))
		return nil
	})
}

// separated prints a version of a key whose value is in a value file.
func (d *dumper) separated(e *kv.Entry, p kv.ValuePointer) {
	d.Printf("%d %s %s at offset %d of value file %d, %d bytes", e.Seq, e.Kind, escape.Quote(e.Key), p.Offset, p.File, p.Length)
	if e.Expiry != 0 {
		d.Printf(" until %d ms", e.Expiry)
	}
	d.Printf("\n")
}
