package repair

import (
	"errors"
	"path"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// tableWriter writes a table under a new number. The file is created with the first entry.
type tableWriter struct {
	p       *part
	num     kv.FileNum
	file    vfs.File
	w       *sstable.Writer
	entries uint64
}

func (p *part) newTable() *tableWriter { return &tableWriter{p: p} }

func (p *part) newNum() kv.FileNum {
	if len(p.reserved) > 0 {
		num := p.reserved[0]
		p.reserved = p.reserved[1:]
		return num
	}
	p.next++
	return p.next - 1
}

func (w *tableWriter) add(e *kv.Entry) (err error) {
	if w.w == nil {
		w.num = w.p.newNum()
		if w.file, err = w.p.out.fsys.Create(w.name()); err != nil {
			return err
		}
		w.w = sstable.NewWriter(w.file, w.p.fileID(w.num), sstable.WriterOptions{})
	}
	w.entries++
	return w.w.Add(e)
}

func (w *tableWriter) name() string { return path.Join(w.p.dir, manifest.TableName(w.num)) }

// finish completes the table, which has an entry, and reads it back.
func (w *tableWriter) finish() (m kv.TableMeta, ranges []kv.Entry, err error) {
	if m, err = w.w.Finish(); err != nil {
		return m, nil, errors.Join(err, w.file.Close())
	}
	r, err := sstable.Open(w.file, w.p.fileID(w.num), nil)
	if err != nil {
		return m, nil, errors.Join(err, w.file.Close())
	}
	ranges = r.RangeTombstones().All()
	return m, ranges, errors.Join(r.Verify(w.p.ctx, nil), r.Close())
}

// discard closes and removes the file, if there is one.
func (w *tableWriter) discard() error {
	if w.file == nil {
		return nil
	}
	return errors.Join(w.file.Close(), w.p.out.fsys.Remove(w.name()))
}

// valueWriter writes one value file under a new number. The file is created with the first
// value.
type valueWriter struct {
	p    *part
	file vfs.File
	w    *valuefile.Writer
}

// add returns the stored pointer to a value, appended to dst.
func (w *valueWriter) add(value, dst []byte) (_ []byte, err error) {
	if w.w == nil {
		num := w.p.newNum()
		if w.file, err = w.p.out.fsys.Create(path.Join(w.p.dir, manifest.ValuesName(num))); err != nil {
			return nil, err
		}
		w.w = valuefile.NewWriter(w.file, w.p.fileID(num))
	}
	pointer, err := w.w.Add(value)
	return pointer.AppendTo(dst), err
}

// finish completes the file, reads it back and returns its description; nil if there is no
// value.
func (w *valueWriter) finish() (*kv.ValueFileMeta, error) {
	if w.w == nil {
		return nil, nil
	}
	m, err := w.w.Finish()
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	r, err := valuefile.Open(w.file, w.p.fileID(m.Num))
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return &m, errors.Join(r.Verify(w.p.ctx, nil), r.Close())
}

// close closes the file. Idempotent.
func (w *valueWriter) close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}
