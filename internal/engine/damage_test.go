package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// damageStore is a closed store with every kind of file in it, and what it holds.
type damageStore struct {
	disk    *vfs.Mem
	opts    Options
	want    map[string]string
	deleted []string          // keys that had values once
	stale   map[string][]byte // CURRENT, manifests and tables from an earlier time
}

func newDamageStore(t testing.TB) *damageStore {
	d := &damageStore{disk: vfs.NewMem(), want: map[string]string{}}
	d.opts = crashOptions(d.disk, 0) // two partitions
	e := open(t, d.opts)
	write := func(from, to int, round string) {
		for i := from; i < to; i++ {
			d.want[key(i)] = round + strings.Repeat("v", 40)
			put(t, e, key(i), d.want[key(i)], buffered)
		}
	}
	write(0, 60, "first")
	require.NoError(t, e.CompactAll(t.Context()))
	d.stale = files(t, d.disk.KillImage())
	write(20, 40, "second")
	for i := 0; i < 60; i += 9 {
		d.deleted = append(d.deleted, key(i))
		del(t, e, key(i), buffered)
		delete(d.want, key(i))
	}
	require.NoError(t, e.Flush(t.Context()))
	write(30, 35, "in the log")
	require.NoError(t, e.Close())
	e = open(t, d.opts) // a second segment
	write(33, 36, "in the next segment")
	require.NoError(t, e.Close())
	return d
}

// files returns the content of every file of the store.
func files(t testing.TB, fsys vfs.FS) map[string][]byte {
	all := map[string][]byte{}
	var walk func(dir string)
	walk = func(dir string) {
		names, err := fsys.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			name = path.Join(dir, name)
			info, err := fsys.Stat(name)
			require.NoError(t, err)
			if info.IsDir() {
				walk(name)
				continue
			}
			f, err := fsys.Open(name)
			require.NoError(t, err)
			content := make([]byte, info.Size())
			if _, err = f.ReadAt(content, 0); len(content) > 0 && err != io.EOF {
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
			all[name] = content
		}
	}
	walk("data")
	return all
}

// damaged returns a copy of the disk in which a file has another content; nil
// takes the file away.
func (d *damageStore) damaged(t testing.TB, name string, content []byte) *vfs.Mem {
	disk := d.disk.KillImage()
	if _, err := disk.Stat(name); err == nil {
		require.NoError(t, disk.Remove(name))
	}
	if content != nil {
		f, err := disk.Create(name)
		require.NoError(t, err)
		_, err = f.WriteAt(content, 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	return disk
}

// judge opens a damaged disk. Every answer must be right, or an error that reports damage,
// also after everything was compacted.
func (d *damageStore) judge(disk *vfs.Mem) error {
	o := d.opts
	o.FS = disk
	e, err := Open("data", o)
	if err != nil {
		return damageError(err)
	}
	err = d.read(e)
	if err == nil {
		if err = e.CompactAll(context.Background()); err != nil {
			err = damageError(err)
		}
	}
	if err == nil {
		if err = d.read(e); err != nil {
			err = fmt.Errorf("after a merge: %w", err)
		}
	}
	_ = e.Close() // a store that failed says so once more
	if err != nil {
		return err
	}
	if e, err = Open("data", o); err != nil {
		return damageError(err)
	}
	err = d.read(e)
	_ = e.Close()
	return err
}

func damageError(err error) error {
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion) {
		return nil
	}
	return fmt.Errorf("not an error of damage: %w", err)
}

func (d *damageStore) read(e *Engine) error {
	for k, want := range d.want {
		item, err := e.Get(context.Background(), []byte(k))
		if err != nil {
			if err = damageError(err); err != nil {
				return fmt.Errorf("key %q: %w", k, err)
			}
			continue
		}
		if string(item.Value) != want {
			return fmt.Errorf("key %q is %q, want %q", k, item.Value, want)
		}
	}
	for _, k := range d.deleted {
		if item, err := e.Get(context.Background(), []byte(k)); err == nil {
			return fmt.Errorf("deleted key %q is back with %q", k, item.Value)
		}
	}
	s, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{})
	if err != nil {
		return err
	}
	sorted := slices.Sorted(maps.Keys(d.want))
	n := 0
	for ; s.Next(); n++ {
		if n == len(sorted) || string(s.Item().Key) != sorted[n] || string(s.Item().Value) != d.want[sorted[n]] {
			err = fmt.Errorf("scan: item %d is %q", n, s.Item().Key)
			break
		}
	}
	switch {
	case err != nil:
	case s.Err() != nil:
		err = damageError(s.Err())
	case n < len(sorted):
		err = fmt.Errorf("scan: only %d of %d items", n, len(sorted))
	}
	if closeErr := s.Close(); err == nil && closeErr != nil {
		err = damageError(closeErr)
	}
	return err
}

// TestEveryDamage damages the files of a closed store, one by one, as disks do: it flips
// bits, truncates, zeroes sectors, removes files, puts blocks of one file into another, and
// replaces files by old versions. By default it flips a sample of the bits; with
// KVD_DAMAGE=full it flips one bit in every byte.
func TestEveryDamage(t *testing.T) {
	t.Parallel()
	d := newDamageStore(t)
	all := files(t, d.disk)
	stride := 19
	switch {
	case os.Getenv("KVD_DAMAGE") == "full":
		stride = 1
	case testsize.Reduced():
		stride = 193
	}
	count := 0
	check := func(name string, content []byte, what string, args ...any) {
		t.Helper()
		count++
		require.NoError(t, d.judge(d.damaged(t, name, content)), "%s of %s", fmt.Sprintf(what, args...), name)
	}
	kinds := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		content := all[name]
		if path.Base(name) == "LOCK" {
			continue
		}
		kinds[path.Ext(strings.TrimRight(name, "0123456789"))]++
		check(name, nil, "removal")
		for i := 0; i < len(content); i += stride {
			flipped := slices.Clone(content)
			flipped[i] ^= 1 << (i % 8)
			check(name, flipped, "flip of bit %d of byte %d", i%8, i)
		}
		for _, n := range []int{0, 1, len(content) / 3, len(content) / 2, len(content) - 100, len(content) - 1} {
			if n >= 0 {
				check(name, slices.Clip(content[:n]), "truncation to %d", n)
			}
		}
		for from := 0; from < len(content); from += 512 {
			zeroed := slices.Clone(content)
			clear(zeroed[from:min(from+512, len(zeroed))])
			if string(zeroed) != string(content) {
				check(name, zeroed, "zeroing at %d", from)
			}
		}
		for _, other := range slices.Sorted(maps.Keys(all)) {
			if other == name || path.Ext(other) != path.Ext(name) || len(all[other]) == 0 {
				continue
			}
			check(name, all[other], "replacement by %s", other)
			for from := 0; from < min(len(content), len(all[other])); from += 512 {
				end := min(from+512, len(content), len(all[other]))
				mixed := slices.Clone(content)
				copy(mixed[from:end], all[other][from:end])
				if string(mixed) != string(content) {
					check(name, mixed, "block of %s at %d in place", other, from)
				}
			}
		}
		if old := d.stale[name]; old != nil && path.Ext(name) != ".wal" && string(old) != string(content) {
			check(name, old, "an older version")
		}
	}
	t.Logf("%d damages of %d files", count, len(all))
}

// Files that the store did not write are kept.
func TestForeignFilesAreSetAside(t *testing.T) {
	d := newDamageStore(t)
	disk := d.damaged(t, "data/p-0000/notes.txt", []byte("not ours"))
	require.NoError(t, d.judge(disk))
	f, err := disk.Open("data/p-0000/lost+found/notes.txt")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
