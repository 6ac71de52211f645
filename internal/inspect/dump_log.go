package inspect

import (
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// segment prints the frames of a log segment with their records.
func (d *dumper) segment() error {
	// wal.Dump returns the header at the end, but it is printed first.
	info, err := wal.Dump(d.fsys, d.name, func(wal.FrameInfo) error { return nil })
	if err != nil && info.Num == 0 {
		return err
	}
	d.Printf("segment %d of store %016x\n", info.Num, info.StoreID)
	d.Printf("  bytes     %d, whole frames up to %d\n", info.Bytes, info.End)
	if info.Prev != 0 {
		d.Printf("  follows   %d\n", info.Prev)
	}
	if info.Replaces != 0 {
		d.Printf("  replaces  %d and what follows it\n", info.Replaces)
	}
	if info.Closed != 0 {
		d.Printf("  closed    in order, at %d\n", info.Closed)
	}
	var unreadable error // of the first records that are none
	frame := func(f wal.FrameInfo) error {
		if err := d.frame(f); err != nil && unreadable == nil {
			unreadable = err
		}
		return nil
	}
	if _, dumpErr := wal.Dump(d.fsys, d.name, frame); dumpErr != nil && !errors.Is(dumpErr, kv.ErrCorrupt) {
		return dumpErr
	}
	restErr := wal.DumpRest(d.fsys, d.name, info.End, frame, func(off, bytes int64) {
		d.Printf("%d: %d bytes that are no frame; kvd check tells whether they are damage\n", off, bytes)
	})
	return errors.Join(err, unreadable, restErr)
}

// frame prints a frame, as far as its records decode.
func (d *dumper) frame(f wal.FrameInfo) error {
	d.Printf("%d: %s frame, %d bytes, after number %d, log synced up to %d:%d\n",
		f.Offset, f.Kind, f.Bytes, f.Prev, f.SyncedSegment, f.SyncedOffset)
	for _, r := range f.Records {
		d.Printf("  record %d, %d units\n", r.Base, r.Units)
		if err := d.Record(f.Offset, r.Base, r.Payload); err != nil {
			return err
		}
	}
	return nil
}

// Record implements Printer.
func (d *dumper) Record(offset int64, base kv.SeqNum, payload []byte) error {
	err := record.Decode(payload, func(op *record.Op) error {
		d.Printf("    partition %d: ", op.Partition)
		d.entry(base+kv.SeqNum(op.Unit), op.Kind, op.Key, op.Value, op.Expiry)
		if o := op.RequestID; o.Named() {
			d.Printf("      request id %016x %d, content %016x\n", o.ClientID, o.Sequence, o.Content)
		}
		return nil
	})
	if err != nil {
		return kv.Corruptf(d.name, offset, "record %d: %v", base, err)
	}
	return nil
}
