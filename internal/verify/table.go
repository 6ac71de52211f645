package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Table reads a whole table, bypassing the block cache, and compares it with what the manifest
// says. If it is whole, Table passes it to also, unless nil, and returns its error.
//
// Errors: every *kv.CorruptionError found, at most 64 and joined, with the bounds of the keys
// where the file is the one that it names; what a read returned; the error of ctx.
func Table(ctx context.Context, fsys vfs.FS, name string, partition uint32, want *kv.TableMeta,
	progress func(bytes int64), also func(*sstable.Reader) error) (err error) {
	defer func() {
		for _, damage := range kv.Corruptions(err) {
			if damage.Last == nil && damage.File == name {
				damage.First, damage.Last = want.Smallest, want.Largest
			}
		}
	}()
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return kv.Corruptf(name, -1, "table is missing; the manifest names it")
	}
	if err != nil {
		return err
	}
	r, err := sstable.Open(f, kv.FileID{Partition: partition, Num: want.Num}, nil)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	err = r.Verify(ctx, progress)
	got := r.Meta()
	err = errors.Join(err, MatchTable(name, &got, want))
	if err == nil && also != nil {
		err = also(r)
	}
	return err
}

// MatchTable returns a *kv.CorruptionError unless a table is the one that the manifest names. Checksums
// cover partition and number, but not the store: a file of another store may be under the name.
func MatchTable(name string, got, want *kv.TableMeta) error {
	if SameTable(got, want) {
		return nil
	}
	keys := ""
	if !bytes.Equal(got.Smallest, want.Smallest) || !bytes.Equal(got.Largest, want.Largest) {
		keys = "; its first or last key is another"
	}
	return kv.Corruptf(name, -1, "holds %s, the manifest says %s%s", withoutKeys(got), withoutKeys(want), keys)
}

// SameTable reports whether two descriptions of a table agree.
func SameTable(a, b *kv.TableMeta) bool {
	return a.Num == b.Num && a.Size == b.Size && a.Entries == b.Entries && a.Deletes == b.Deletes &&
		a.MinSeq == b.MinSeq && a.MaxSeq == b.MaxSeq &&
		bytes.Equal(a.Smallest, b.Smallest) && bytes.Equal(a.Largest, b.Largest) && slices.Equal(a.Values, b.Values)
}

// DescribeTable describes a table in one line. It has keys, so it is for kvd dump and not for errors.
func DescribeTable(t *kv.TableMeta) string {
	return fmt.Sprintf("%s, keys %s to %s", withoutKeys(t), escape.Quote(t.Smallest), escape.Quote(t.Largest))
}

func withoutKeys(t *kv.TableMeta) string {
	s := fmt.Sprintf("%d bytes, %d entries, %d of them deletes, numbers %d to %d", t.Size, t.Entries, t.Deletes, t.MinSeq, t.MaxSeq)
	for _, ref := range t.Values {
		s += fmt.Sprintf(", %d values of %d bytes in %06d", ref.Values, ref.Bytes, ref.File)
	}
	return s
}
