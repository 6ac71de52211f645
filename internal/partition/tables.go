package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/verify"
)

// tableSet holds the open readers, one for each table that a live version names.
type tableSet struct {
	mu      sync.Mutex
	readers map[kv.FileNum]*sstable.Reader
}

func (t *tableSet) init() { t.readers = make(map[kv.FileNum]*sstable.Reader) }

// openLevels opens what is not open yet of a version, and takes over the
// reference to it, also on error.
func (p *Partition) openLevels(version *manifest.Ref) (*levels, error) {
	l := &levels{version: version, deltas: make([]run, len(version.Deltas))}
	l.refs.Store(1)
	err := p.openRun(&l.base, version.Base)
	for i := range version.Deltas {
		err = errors.Join(err, p.openRun(&l.deltas[i], version.Deltas[i]))
	}
	if err != nil {
		l.release()
		return nil, err
	}
	l.runs(func(r *run) bool {
		for _, reader := range r.readers {
			if covers := reader.RangeTombstones(); covers.Len() > 0 {
				l.covers = append(l.covers, covers)
			}
			if reader.Damage() != nil {
				l.damaged = append(l.damaged, reader)
			}
		}
		return true
	})
	return l, nil
}

func (p *Partition) openRun(r *run, metas manifest.Run) error {
	r.metas = metas
	r.readers = make([]*sstable.Reader, len(metas))
	for i := range metas {
		reader, err := p.openTable(&metas[i])
		if err != nil {
			return err
		}
		r.readers[i] = reader
	}
	return nil
}

func (p *Partition) openTable(meta *kv.TableMeta) (*sstable.Reader, error) {
	t := &p.tables
	t.mu.Lock()
	reader := t.readers[meta.Num]
	t.mu.Unlock()
	if reader != nil {
		return reader, nil
	}
	reader, err := p.openFile(meta)
	if err != nil {
		reader, err = p.damagedTable(meta, err)
	}
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readers[meta.Num] = reader
	return reader, nil
}

// openFile opens the file of a table.
func (p *Partition) openFile(meta *kv.TableMeta) (*sstable.Reader, error) {
	f, err := p.opts.FS.Open(p.path(manifest.TableName(meta.Num)))
	if err != nil {
		return nil, fmt.Errorf("open sstable %06d: %w", meta.Num, err)
	}
	reader, err := sstable.Open(f, p.fileID(meta.Num), p.opts.Cache)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	got := reader.Meta()
	if err := verify.MatchTable(f.Name(), &got, meta); err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return reader, nil
}

func (p *Partition) fileID(num kv.FileNum) kv.FileID {
	return kv.FileID{Partition: uint32(p.id), Num: num}
}

// removeFile closes and removes a table or value file that no version names any
// more. The manifest calls it; if the file stays, the next Open removes it.
func (p *Partition) removeFile(kind manifest.FileKind, num kv.FileNum) {
	drop := p.tables.drop
	if kind == manifest.FileValues {
		drop = p.values.Drop
		p.cached.Drop(num)
	}
	err := p.opts.FS.Remove(p.fileName(kind, num))
	if errors.Is(err, fs.ErrNotExist) && p.opts.AllowDamaged {
		err = nil // it was missing
	}
	p.damaged.remove(num)
	if err = errors.Join(drop(num), err); err != nil && p.events != nil && p.events.BackgroundError != nil {
		p.events.BackgroundError(fmt.Errorf("remove %s %06d of partition %d: %w", kind, num, p.id, err))
	}
}

// fileName returns the path of a table or value file.
func (p *Partition) fileName(kind manifest.FileKind, num kv.FileNum) string {
	if kind == manifest.FileValues {
		return p.path(manifest.ValuesName(num))
	}
	return p.path(manifest.TableName(num))
}

// drop closes the reader of a table that no live version names any more.
func (t *tableSet) drop(num kv.FileNum) error {
	t.mu.Lock()
	reader := t.readers[num]
	delete(t.readers, num)
	t.mu.Unlock()
	if reader == nil {
		return nil
	}
	return reader.Close()
}

// rangeTombstones returns those of an open table, nil if it has none.
func (t *tableSet) rangeTombstones(num kv.FileNum) *kv.RangeTombstones {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reader := t.readers[num]; reader != nil {
		return reader.RangeTombstones()
	}
	return nil
}

// stats returns those of an open table, nothing if it is not open.
func (t *tableSet) stats(num kv.FileNum) kv.TableStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reader := t.readers[num]; reader != nil {
		return reader.Stats()
	}
	return kv.TableStats{}
}

// closeAll closes every reader.
func (t *tableSet) closeAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for num, reader := range t.readers {
		errs = append(errs, reader.Close())
		delete(t.readers, num)
	}
	return errors.Join(errs...)
}
