package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	manifestMagic = "kvdMANIF"
	// manifestFormat is written for a Version with a position, formatValues for another with
	// value files, and formatWithout for one with neither, so that older releases can read
	// what has nothing new.
	manifestFormat = 3
	formatValues   = 2
	formatWithout  = 1
	preambleBytes  = 16 // magic, format version and their checksum
	headerBytes    = 36
	checksumBytes  = 4
	maxManifest    = 64 << 20 // bytes; room for 500,000 tables with short keys
	minTableBytes  = 10       // eight numbers and two keys of one byte
	minDeltaBytes  = 1 + minTableBytes
	minValueBytes  = 3 // three numbers
	maxPosition    = 64 << 10
	maxPerTable    = 1 << 48 // bytes or entries; keeps their sums from overflowing
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// appendManifest appends the content of the Version's manifest file to b. The layout is
// in the package comment.
func appendManifest(b []byte, v *Version) []byte {
	start := len(b)
	b = append(b, manifestMagic...)
	format := uint32(formatWithout)
	switch {
	case len(v.Position) > 0:
		format = manifestFormat
	case len(v.Values) > 0:
		format = formatValues
	}
	b = binary.LittleEndian.AppendUint32(b, format)
	b = binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
	b = binary.LittleEndian.AppendUint32(b, v.Partition)
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Num))
	b = binary.LittleEndian.AppendUint64(b, 0) // the length of the body, set below
	b = appendBody(b, v)
	binary.LittleEndian.PutUint64(b[start+headerBytes-8:], uint64(len(b)-start-headerBytes))
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

func appendBody(b []byte, v *Version) []byte {
	b = binary.AppendUvarint(b, uint64(v.NextFile))
	b = binary.AppendUvarint(b, uint64(v.FlushedSeq))
	b = binary.AppendUvarint(b, uint64(v.MaxSeq))
	b = binary.AppendUvarint(b, uint64(len(v.Deltas)))
	for _, run := range v.runs() {
		b = binary.AppendUvarint(b, uint64(len(run)))
		for i := range run {
			b = appendTable(b, &run[i])
		}
	}
	if len(v.Position) > 0 {
		b = binary.AppendUvarint(b, uint64(len(v.Position)))
		b = append(b, v.Position...)
	}
	if len(v.Values) > 0 {
		b = appendValues(b, v)
	}
	return b
}

// appendValues appends the value files, and what each table needs of them.
func appendValues(b []byte, v *Version) []byte {
	b = binary.AppendUvarint(b, uint64(len(v.Values)))
	for i := range v.Values {
		m := &v.Values[i]
		for _, n := range [...]uint64{uint64(m.Num), m.Size, m.Values, m.Bytes} {
			b = binary.AppendUvarint(b, n)
		}
	}
	for t := range v.Tables() {
		b = binary.AppendUvarint(b, uint64(len(t.Values)))
		for _, ref := range t.Values {
			for _, n := range [...]uint64{uint64(ref.File), ref.Values, ref.Bytes} {
				b = binary.AppendUvarint(b, n)
			}
		}
	}
	return b
}

func appendTable(b []byte, t *kv.TableMeta) []byte {
	b = binary.AppendUvarint(b, uint64(t.Num))
	b = binary.AppendUvarint(b, t.Size)
	b = binary.AppendUvarint(b, t.Entries)
	b = binary.AppendUvarint(b, t.Deletes)
	b = binary.AppendUvarint(b, uint64(t.MinSeq))
	b = binary.AppendUvarint(b, uint64(t.MaxSeq-t.MinSeq))
	b = binary.AppendUvarint(b, uint64(len(t.Smallest)))
	b = append(b, t.Smallest...)
	b = binary.AppendUvarint(b, uint64(len(t.Largest)))
	return append(b, t.Largest...)
}

// DecodeManifest decodes the content of a manifest file. The Version keeps no part
// of data. Its partition and number are those in the file; the caller compares them with
// those that it expects.
//
// Errors: kv.ErrUnsupportedVersion, or a *kv.CorruptionError naming file.
func DecodeManifest(file string, data []byte) (*Version, error) {
	format, err := FormatOf(file, data)
	if err != nil {
		return nil, err
	}
	if format > manifestFormat {
		return nil, fmt.Errorf("%w: %s has manifest format %d, this version reads %d to %d",
			kv.ErrUnsupportedVersion, file, format, formatWithout, manifestFormat)
	}
	if len(data) < headerBytes+checksumBytes {
		return nil, kv.Corruptf(file, -1, "%d bytes, too short for a manifest", len(data))
	}
	end := len(data) - checksumBytes
	if got, want := checksum(data[:end]), binary.LittleEndian.Uint32(data[end:]); got != want {
		return nil, kv.Corruptf(file, 0, "checksum is %08x, computed %08x", want, got)
	}
	if n := binary.LittleEndian.Uint64(data[28:]); n != uint64(end-headerBytes) {
		return nil, kv.Corruptf(file, 28, "body of %d bytes, want %d", end-headerBytes, n)
	}
	v := &Version{
		Partition: binary.LittleEndian.Uint32(data[16:]),
		Num:       kv.FileNum(binary.LittleEndian.Uint64(data[20:])),
	}
	d := decoder{rest: data[headerBytes:end]}
	d.body(v)
	if format == manifestFormat {
		d.position(v)
	}
	if format == formatValues || format == manifestFormat && len(d.rest) > 0 {
		d.values(v)
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes after the body", len(d.rest))
	}
	if d.err == nil {
		d.err = v.check()
	}
	if d.err != nil {
		return nil, kv.Corruptf(file, int64(end-len(d.rest)), "%v", d.err)
	}
	return v, nil
}

// decoder consumes rest; err is set, for good, once anything is out of bounds.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) body(v *Version) {
	v.NextFile = kv.FileNum(d.uvarint(1<<64 - 1))
	v.FlushedSeq = kv.SeqNum(d.uvarint(uint64(kv.MaxSeqNum)))
	v.MaxSeq = kv.SeqNum(d.uvarint(uint64(kv.MaxSeqNum)))
	if deltas := d.count(minDeltaBytes); deltas > 0 {
		v.Deltas = make([]Run, deltas)
	}
	for i := range v.Deltas {
		v.Deltas[i] = d.run()
	}
	v.Base = d.run()
}

func (d *decoder) run() Run {
	tables := d.count(minTableBytes)
	if tables == 0 {
		return nil
	}
	run := make(Run, tables)
	for i := range run {
		d.table(&run[i])
	}
	return run
}

func (d *decoder) table(t *kv.TableMeta) {
	t.Num = kv.FileNum(d.uvarint(1<<64 - 1))
	t.Size = d.uvarint(maxPerTable)
	t.Entries = d.uvarint(maxPerTable)
	t.Deletes = d.uvarint(maxPerTable)
	t.MinSeq = kv.SeqNum(d.uvarint(uint64(kv.MaxSeqNum)))
	t.MaxSeq = t.MinSeq + kv.SeqNum(d.uvarint(uint64(kv.MaxSeqNum)))
	t.Smallest = d.key()
	t.Largest = d.key()
}

func (d *decoder) position(v *Version) {
	n := d.uvarint(maxPosition)
	if n == 0 || n > uint64(len(d.rest)) {
		d.fail(fmt.Errorf("a position of %d bytes", n))
	}
	if d.err == nil {
		v.Position = append([]byte(nil), d.rest[:n]...)
		d.rest = d.rest[n:]
	}
}

// values decodes what appendValues appends.
func (d *decoder) values(v *Version) {
	v.Values = make([]kv.ValueFileMeta, d.count(minValueBytes+1))
	if len(v.Values) == 0 {
		d.fail(errors.New("no value files"))
	}
	for i := range v.Values {
		v.Values[i] = kv.ValueFileMeta{
			Num: kv.FileNum(d.uvarint(1<<64 - 1)), Size: d.uvarint(maxPerTable), Values: d.uvarint(maxPerTable), Bytes: d.uvarint(maxPerTable),
		}
	}
	for t := range v.Tables() {
		refs := d.count(minValueBytes)
		if refs == 0 {
			continue
		}
		t.Values = make([]kv.ValueRef, refs)
		for i := range t.Values {
			ref := &t.Values[i]
			*ref = kv.ValueRef{File: kv.FileNum(d.uvarint(1<<64 - 1)), Values: d.uvarint(maxPerTable), Bytes: d.uvarint(maxPerTable)}
			if ref.Values == 0 || ref.Bytes < ref.Values || i > 0 && ref.File <= t.Values[i-1].File {
				d.fail(fmt.Errorf("table %06d needs %d values, %d bytes, of value file %d", t.Num, ref.Values, ref.Bytes, ref.File))
			}
		}
	}
}

func (d *decoder) key() []byte {
	n := d.uvarint(kv.MaxKeyBytes)
	if n > uint64(len(d.rest)) {
		d.fail(errors.New("key goes past the end"))
	}
	if d.err != nil {
		return nil
	}
	key := append([]byte(nil), d.rest[:n]...)
	d.rest = d.rest[n:]
	return key
}

// count decodes the number of the units that follow, of at least unitBytes bytes each.
func (d *decoder) count(unitBytes int) int {
	return int(d.uvarint(uint64(len(d.rest) / unitBytes)))
}

// uvarint decodes a number of at most max in its shortest form.
func (d *decoder) uvarint(max uint64) uint64 {
	x, n := binary.Uvarint(d.rest)
	switch {
	case n <= 0:
		d.fail(errors.New("number is cut or too long"))
	case n > 1 && d.rest[n-1] == 0:
		d.fail(errors.New("number is not in its shortest form"))
	case x > max:
		d.fail(fmt.Errorf("number %d, want at most %d", x, max))
	}
	if d.err != nil {
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}
