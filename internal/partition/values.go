package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/verify"
)

// openValues opens a value file for the partition's set.
func (p *Partition) openValues(num kv.FileNum) (*valuefile.Reader, error) {
	name := p.fileName(manifest.FileValues, num)
	r, err := verify.OpenValues(p.opts.FS, name, p.fileID(num))
	if errors.Is(err, fs.ErrNotExist) {
		err = kv.Corruptf(name, -1, "value file is missing; the manifest names it")
	}
	if err != nil {
		return nil, fmt.Errorf("open value file %06d: %w", num, err)
	}
	if want := p.valueFile(num); want != nil {
		if err := verify.MatchValues(name, r.Meta(), want); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// valueFile returns what the current version says of a value file; nil if it does not name it any
// more.
func (p *Partition) valueFile(num kv.FileNum) *kv.ValueFileMeta {
	s := p.acquire()
	defer s.release()
	values := s.levels.version.Values
	i := slices.IndexFunc(values, func(m kv.ValueFileMeta) bool { return m.Num == num })
	if i < 0 {
		return nil
	}
	return &values[i]
}

// readApart reads the values that the tables only pointed to, of a whole micro-batch
// together.
func (p *Partition) readApart(open []openRead) (waited bool) {
	if len(open) == 1 {
		q := &open[0].query
		if !q.Apart {
			return false
		}
		q.Value, waited, q.Err = p.values.TimedRead(q.Pointer, q.Value)
		p.keep(q)
		return waited
	}
	var fetches []valuefile.Fetch
	for i := range open {
		if q := &open[i].query; q.Apart {
			fetches = append(fetches, valuefile.Fetch{Pointer: q.Pointer, Value: q.Value})
		}
	}
	if len(fetches) == 0 {
		return false
	}
	waited = p.values.ReadBatch(fetches)
	for i := range open {
		if q := &open[i].query; q.Apart {
			q.Value, q.Err = fetches[0].Value, fetches[0].Err
			fetches = fetches[1:]
			p.keep(q)
		}
	}
	return waited
}

// keep offers a value that was read and verified to the cache. The query's read state keeps
// its file, so removeFile, which drops the values of the file, comes later.
func (p *Partition) keep(q *sstable.Query) {
	if q.Err == nil {
		p.cached.Add(q.Pointer, q.Value)
	}
}
