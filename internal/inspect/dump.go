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

func (d *dumper) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

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
	if path.Ext(base) == segmentSuffix {
		return d.segment()
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
	return fmt.Errorf("%w: %s has no name that kvd gives to a file; want STORE, CLOCK, NODE, CURRENT, MANIFEST-n, n.sst, n.val or n.wal",
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
	d.printf("store\n  id          %016x\n  partitions  %d\n  key hash    %s\n", s.StoreID, s.Partitions, s.Hash)
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
	d.printf("clock\n  store       %016x\n  not beyond  %d ms, %s\n", c.StoreID, c.Bound,
		time.UnixMilli(int64(c.Bound)).UTC().Format(time.RFC3339))
	if c.Boot != [16]byte{} {
		d.printf("  boot        %x\n  there       %v after the boot, at %s; the machine's clock %s\n", c.Boot, time.Duration(c.Since),
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
	d.printf("node\n  store       %016x\n  cluster     %016x\n  id          %d\n", n.StoreID, n.Cluster, n.Node)
	for _, id := range slices.Sorted(maps.Keys(n.Members)) {
		d.printf("  knows       %d at %s\n", id, n.Members[id])
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
	d.printf("current\n  partition  %d\n  manifest   %s\n", owner, manifest.ManifestName(num))
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
	d.printf("manifest %d of partition %d\n  next file      %d\n  flushed up to  %d\n  largest number %d\n",
		v.Num, v.Partition, v.NextFile, v.FlushedSeq, v.MaxSeq)
	for i, run := range v.Deltas {
		d.run(fmt.Sprintf("delta %d", i), run)
	}
	d.run("base", v.Base)
	needed := v.NeededValues()
	for i := range v.Values {
		m := &v.Values[i]
		d.printf("  %s  %s, needed %d of %d bytes\n", manifest.ValuesName(m.Num), verify.DescribeValues(m), needed[m.Num].Values, needed[m.Num].Bytes)
	}
	return nil
}

func (d *dumper) run(name string, run manifest.Run) {
	if len(run) == 0 {
		d.printf("%s: empty\n", name)
		return
	}
	d.printf("%s: %d bytes in %d tables\n", name, run.Bytes(), len(run))
	for i := range run {
		d.printf("  %s  %s\n", manifest.TableName(run[i].Num), verify.DescribeTable(&run[i]))
	}
}

// entry prints one version of a key, or one operation of the log.
func (d *dumper) entry(seq kv.SeqNum, kind kv.Kind, key, value []byte, expiry uint64) {
	d.printf("%d %s %s", seq, kind, escape.Quote(key))
	switch kind {
	case kv.KindPut:
		d.printf(" = %s", d.value(value))
	case kv.KindRangeDelete:
		d.printf(" to %s", escape.Quote(value))
	}
	if expiry != 0 {
		d.printf(" until %d ms", expiry)
	}
	d.printf("\n")
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
