package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/verify"
	"github.com/kvd-db/kvd/internal/vfs"
)

// DumpOptions are the options of Dump.
type DumpOptions struct {
	// Values prints values whole; otherwise only the first bytes and the length.
	Values bool
	// Log prints a segment of the log of a node of a cluster; nil: Dump refuses it.
	Log LogDump
}

// LogDump prints a segment of the log of a node of a cluster. It is not in this package, which does
// not know the consensus: see LogCheck.
//
// Errors: as those of Dump.
type LogDump func(fsys vfs.FS, name string, p Printer) error

// Printer takes what a LogDump prints.
type Printer interface {
	Printf(format string, args ...any)
	// Record prints the operations of a record, as in package record, by the number of its first
	// unit. offset is that of its frame in the segment.
	Record(offset int64, base kv.SeqNum, payload []byte) error
}

// Dump prints a file of a store in readable form. The file's name determines its type.
// The checksums of tables and log segments depend on their location, so such files must
// be in place. Keys and values are printed as by escape.Bytes.
//
// Errors: kv.ErrInvalidArgument if the name is not that of a store's file; a
// *kv.CorruptionError, after Dump has printed what is readable;
// kv.ErrUnsupportedVersion.
func Dump(fsys vfs.FS, name string, w io.Writer, o DumpOptions) error {
	out := bufio.NewWriter(w)
	d := &dumper{fsys: fsys, name: path.Clean(name), out: out, o: o}
	return errors.Join(d.dump(), out.Flush())
}

// dumper prints one file. Flush of out returns its write errors.
type dumper struct {
	fsys vfs.FS
	name string
	out  *bufio.Writer
	o    DumpOptions
}

// Printf implements Printer.
func (d *dumper) Printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

func (d *dumper) dump() error {
	base := path.Base(d.name)
	switch base {
	case descriptor.Name:
		return d.store()
	case descriptor.ClockName:
		return d.clock()
	case descriptor.NodeName:
		return d.node()
	}
	switch {
	case descriptor.IsOwnSegment(base):
		return d.segment()
	case descriptor.IsReplicatedSegment(base) && d.o.Log != nil:
		return d.o.Log(d.fsys, d.name, d)
	}
	switch kind, num := manifest.ParseName(base); kind {
	case manifest.FileCurrent:
		return d.current()
	case manifest.FileManifest:
		return d.manifest()
	case manifest.FileTable:
		return d.table(num)
	case manifest.FileValues:
		return d.values(num)
	}
	return fmt.Errorf("%w: %s has no name that kvd gives to a file; want STORE, CLOCK, NODE, CURRENT, MANIFEST-n, n.sst, n.val, n.wal or n.raft",
		kv.ErrInvalidArgument, d.name)
}

func (d *dumper) store() error {
	data, err := readSmall(d.fsys, d.name)
	if err != nil {
		return err
	}
	s, err := descriptor.Decode(d.name, data)
	if err != nil {
		return err
	}
	d.Printf("store\n  id          %016x\n  partitions  %d\n  key hash    %s\n", s.StoreID, s.Partitions, s.Hash)
	return nil
}

func (d *dumper) clock() error {
	data, err := readSmall(d.fsys, d.name)
	if err != nil {
		return err
	}
	c, err := descriptor.DecodeClock(d.name, data)
	if err != nil {
		return err
	}
	d.Printf("clock\n  store       %016x\n  not beyond  %d ms, %s\n", c.StoreID, c.Bound,
		time.UnixMilli(int64(c.Bound)).UTC().Format(time.RFC3339))
	if c.Boot != [16]byte{} {
		d.Printf("  boot        %x\n  there       %v after the boot, at %s; the machine's clock %s\n", c.Boot, time.Duration(c.Since),
			time.UnixMicro(int64(c.Time)).UTC().Format(time.RFC3339Nano), time.UnixMicro(int64(c.Wall)).UTC().Format(time.RFC3339Nano))
	}
	return nil
}

func (d *dumper) node() error {
	data, err := readSmall(d.fsys, d.name)
	if err != nil {
		return err
	}
	n, err := descriptor.DecodeNode(d.name, data)
	if err != nil {
		return err
	}
	d.Printf("node\n  store       %016x\n  cluster     %016x\n  id          %d\n", n.StoreID, n.Cluster, n.Node)
	if n.Incarnation != (kv.Incarnation{}) {
		d.Printf("  incarnation %s\n", n.Incarnation)
	}
	for _, id := range slices.Sorted(maps.Keys(n.Members)) {
		d.Printf("  knows       %d at %s\n", id, n.Members[id])
	}
	return nil
}

func (d *dumper) current() error {
	data, err := readSmall(d.fsys, d.name)
	if err != nil {
		return err
	}
	owner, num, err := manifest.DecodeCurrent(d.name, data)
	if err != nil {
		return err
	}
	d.Printf("current\n  partition  %d\n  manifest   %s\n", owner, manifest.ManifestName(num))
	return nil
}

func (d *dumper) manifest() error {
	data, err := readSmall(d.fsys, d.name)
	if err != nil {
		return err
	}
	v, err := manifest.DecodeManifest(d.name, data)
	if err != nil {
		return err
	}
	d.Printf("manifest %d of partition %d\n  next file      %d\n  flushed up to  %d\n  largest number %d\n",
		v.Num, v.Partition, v.NextFile, v.FlushedSeq, v.MaxSeq)
	for i, run := range v.Deltas {
		d.run(fmt.Sprintf("delta %d", i), run)
	}
	d.run("base", v.Base)
	needed := v.NeededValues()
	for i := range v.Values {
		m := &v.Values[i]
		d.Printf("  %s  %s, needed %d of %d bytes\n", manifest.ValuesName(m.Num), verify.DescribeValues(m), needed[m.Num].Values, needed[m.Num].Bytes)
	}
	return nil
}

func (d *dumper) run(name string, run manifest.Run) {
	if len(run) == 0 {
		d.Printf("%s: empty\n", name)
		return
	}
	d.Printf("%s: %d bytes in %d tables\n", name, run.Bytes(), len(run))
	for i := range run {
		d.Printf("  %s  %s\n", manifest.TableName(run[i].Num), verify.DescribeTable(&run[i]))
	}
}

// entry prints one version of a key, or one operation of the log.
func (d *dumper) entry(seq kv.SeqNum, kind kv.Kind, key, value []byte, expiry uint64) {
	d.Printf("%d %s %s", seq, kind, escape.Quote(key))
	switch kind {
	case kv.KindPut:
		d.Printf(" = %s", d.value(value))
	case kv.KindRangeDelete:
		d.Printf(" to %s", escape.Quote(value))
	}
	if expiry != 0 {
		d.Printf(" until %d ms", expiry)
	}
	d.Printf("\n")
}

// shownValue is how much of a value is printed without DumpOptions.Values. Guessed: a
// line then fits in a wide window.
const shownValue = 48

func (d *dumper) value(v []byte) string {
	if d.o.Values || len(v) <= shownValue {
		return escape.Quote(v)
	}
	return fmt.Sprintf("%s... (%d bytes)", escape.Quote(v[:shownValue]), len(v))
}
