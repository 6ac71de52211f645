package compaction

import (
	"bytes"
	"context"
	"errors"
	"reflect"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// output is a table that is being written.
type output struct {
	file     vfs.File
	id       kv.FileID
	writer   *sstable.Writer
	rangeEnd []byte // where the range tombstones in it end
}

func newOutput(f vfs.File, id kv.FileID, o sstable.WriterOptions) *output {
	return &output{file: f, id: id, writer: sstable.NewWriter(f, id, o)}
}

func (o *output) add(e *kv.Entry) error {
	if e.Kind == kv.KindRangeDelete && bytes.Compare(e.Value, o.rangeEnd) > 0 {
		o.rangeEnd = bytes.Clone(e.Value)
	}
	return o.writer.Add(e)
}

// full reports whether the table should end before key: it is long enough, and
// no range tombstone in it reaches there, so that tables stay disjoint.
func (o *output) full(tableBytes int64, key []byte) bool {
	return o.writer.Size() >= tableBytes && (o.rangeEnd == nil || bytes.Compare(o.rangeEnd, key) < 0)
}

// finish completes and closes the file, and verifies it if asked to.
func (o *output) finish(ctx context.Context, verify bool) (kv.TableMeta, error) {
	meta, err := o.writer.Finish()
	if err == nil && verify {
		err = o.verify(ctx, meta)
	}
	if err == nil {
		// Nobody may ask for these bytes soon, and they push out what is asked for.
		o.file.DropCache(0, int64(meta.Size))
	}
	return meta, errors.Join(err, o.file.Close())
}

// verify reads the file again, before anything is built upon it (RocksDB does
// that as paranoid_file_checks).
func (o *output) verify(ctx context.Context, meta kv.TableMeta) error {
	r, err := sstable.Open(keepOpen{o.file}, o.id, nil)
	if err != nil {
		return err
	}
	err = r.Verify(ctx, nil)
	if err == nil && !reflect.DeepEqual(r.Meta(), meta) {
		err = kv.Corruptf(o.file.Name(), -1, "it says of itself %+v, written was %+v", r.Meta(), meta)
	}
	return errors.Join(err, r.Close())
}

// keepOpen is a file that its reader does not close.
type keepOpen struct{ vfs.File }

func (keepOpen) Close() error { return nil }
