package partition

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/valuefile"
)

// openValues opens a value file for the partition's set.
func (p *Partition) openValues(num kv.FileNum) (*valuefile.Reader, error) {
	f, err := p.opts.FS.Open(p.fileName(manifest.FileValues, num))
	if errors.Is(err, fs.ErrNotExist) {
		err = kv.Corruptf(p.fileName(manifest.FileValues, num), -1, "value file is missing; the manifest names it")
	}
	if err != nil {
		return nil, fmt.Errorf("open value file %06d: %w", num, err)
	}
	r, err := valuefile.Open(f, p.fileID(num))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
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
		}
	}
	return waited
}
