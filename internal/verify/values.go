package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Values reads a whole value file and compares it with what the manifest says. It ends with
// the first damage. Errors as of Table.
func Values(ctx context.Context, fsys vfs.FS, name string, partition uint32, want *kv.ValueFileMeta, progress func(bytes int64)) (err error) {
	r, err := OpenValues(fsys, name, kv.FileID{Partition: partition, Num: want.Num})
	if errors.Is(err, fs.ErrNotExist) {
		return kv.Corruptf(name, -1, "value file is missing; the manifest names it")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = r.Verify(ctx, progress)
	return errors.Join(err, MatchValues(name, r.Meta(), want))
}

// MatchValues is MatchTable for a value file.
func MatchValues(name string, got kv.ValueFileMeta, want *kv.ValueFileMeta) error {
	if got == *want {
		return nil
	}
	return kv.Corruptf(name, -1, "holds %s, the manifest says %s", DescribeValues(&got), DescribeValues(want))
}

// OpenValues opens a value file. The caller closes it.
func OpenValues(fsys vfs.FS, name string, id kv.FileID) (*valuefile.Reader, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	r, err := valuefile.Open(f, id)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

// DescribeValues describes a value file in one line.
func DescribeValues(m *kv.ValueFileMeta) string {
	return fmt.Sprintf("%d bytes, %d values of %d bytes", m.Size, m.Values, m.Bytes)
}
