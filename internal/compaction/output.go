package compaction

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// maxWaiting bounds the memory for waiting entries, and so the size of
	// a table that is cut under a range tombstone. Guessed: a quarter of a table.
	maxWaiting = 8 << 20
	// waitingEntryBytes is the cost of a waiting entry besides key and value.
	waitingEntryBytes = 80 + 2*8
)

// output is a table that is being written.
//
// Tables of a run share no key, so a range tombstone that extends past the end of
// its table is cut there. The file stores its end at its start, before the end of the
// table is known. So from a range tombstone on, entries wait in memory until the merge
// passes the end of the tombstone, or until the table is cut.
type output struct {
	file   vfs.File
	id     kv.FileID
	writer *sstable.Writer

	advanced bool       // it has more than the parts cut off the previous table
	last     []byte     // the last key, written or waiting
	rangeEnd []byte     // the largest end of the waiting range tombstones; nil if none waits
	waiting  []kv.Entry // empty, or a range tombstone and the entries after it; owned
	size     int        // bytes of the keys and values that wait
}

func newOutput(f vfs.File, id kv.FileID, o sstable.WriterOptions) *output {
	return &output{file: f, id: id, writer: sstable.NewWriter(f, id, o)}
}

// add adds a put or delete, whose slices it copies.
func (o *output) add(e *kv.Entry) error {
	o.last = append(o.last[:0], e.Key...)
	if err := o.reach(e.Key); err != nil {
		return err
	}
	if len(o.waiting) == 0 {
		return o.writer.Add(e)
	}
	copied := *e
	both := append(append(make([]byte, 0, e.Size()), e.Key...), e.Value...)
	copied.Key, copied.Value = both[:len(e.Key):len(e.Key)], both[len(e.Key):]
	o.wait(copied)
	return nil
}

// addRange adds a range tombstone, whose slices it keeps.
func (o *output) addRange(t *kv.Entry) error {
	o.last = append(o.last[:0], t.Key...)
	if err := o.reach(t.Key); err != nil {
		return err
	}
	o.wait(*t)
	if bytes.Compare(t.Value, o.rangeEnd) > 0 {
		o.rangeEnd = t.Value
	}
	return nil
}

func (o *output) wait(e kv.Entry) {
	o.waiting = append(o.waiting, e)
	o.size += e.Size()
}

// reach writes the waiting entries if no waiting range tombstone covers key.
func (o *output) reach(key []byte) error {
	if o.rangeEnd == nil || bytes.Compare(o.rangeEnd, key) > 0 {
		return nil
	}
	return o.release()
}

// release writes the waiting entries.
func (o *output) release() error {
	for i := range o.waiting {
		if err := o.writer.Add(&o.waiting[i]); err != nil {
			return err
		}
	}
	clear(o.waiting)
	o.waiting, o.rangeEnd, o.size = o.waiting[:0], nil, 0
	return nil
}

// full reports whether the table should end before next, the next key of the
// merge: it is long enough, can be cut there, and the merge advanced since the last cut.
func (o *output) full(tableBytes int64, next []byte) bool {
	if o.writer.Size()+int64(o.size) < tableBytes && o.size+len(o.waiting)*waitingEntryBytes < maxWaiting {
		return false
	}
	return o.advanced && bytes.Compare(o.last, next) < 0 && (o.endsBefore(next) || cutBetween(o.last, next) != nil)
}

// endsBefore reports whether no range tombstone reaches key.
func (o *output) endsBefore(key []byte) bool { return bytes.Compare(o.rangeEnd, key) < 0 }

// cutBetween returns a key > last and <= next at which to cut range tombstones, nil if
// there is none. It ends with a zero byte, so that the key
// directly before it is known and the bounds of the tables are disjoint (see
// sstable.Reader.Meta). There is none only if last has kv.MaxKeyBytes and
// next is one of the 256 keys after it.
func cutBetween(last, next []byte) []byte {
	if len(last) == kv.MaxKeyBytes {
		last = kv.PrefixRange(last[:len(last)-1]).End
		if last == nil || bytes.Compare(last, next) >= 0 {
			return nil
		}
	}
	return append(bytes.Clone(last), 0)
}

// cut makes the range tombstones end before next, the next key of the merge, and
// returns the parts that it cut off.
func (o *output) cut(next []byte) (rest []kv.Entry) {
	if o.endsBefore(next) {
		return nil
	}
	at := cutBetween(o.last, next)
	for i := range o.waiting {
		t := &o.waiting[i]
		if t.Kind == kv.KindRangeDelete && bytes.Compare(t.Value, at) > 0 {
			rest = append(rest, kv.Entry{Key: at, Value: t.Value, Seq: t.Seq, Kind: t.Kind})
			t.Value = at
		}
	}
	return rest
}

// finish completes the file, reads it back and closes it.
func (o *output) finish(ctx context.Context) (kv.TableMeta, error) {
	var meta kv.TableMeta
	err := o.release()
	if err == nil {
		meta, err = o.writer.Finish()
	}
	if err == nil {
		if err = o.verify(ctx, meta); err != nil {
			err = fmt.Errorf("read back a table just written: %w", err)
		}
	}
	return meta, errors.Join(err, o.file.Close())
}

// verify reads the file again before the caller relies on it (RocksDB:
// paranoid_file_checks).
func (o *output) verify(ctx context.Context, meta kv.TableMeta) error {
	r, err := sstable.Open(keepOpen{o.file}, o.id, nil)
	if err != nil {
		return err
	}
	err = r.Verify(ctx, nil)
	if err == nil && !reflect.DeepEqual(r.Meta(), meta) {
		err = kv.Corruptf(o.file.Name(), -1, "it reads back as a table of %d bytes and %d entries, written was one of %d bytes and %d entries",
			r.Meta().Size, r.Meta().Entries, meta.Size, meta.Entries)
	}
	return errors.Join(err, r.Close())
}

// keepOpen is a file that its reader does not close.
type keepOpen struct{ vfs.File }

func (keepOpen) Close() error { return nil }
