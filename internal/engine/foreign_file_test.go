package engine

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const foreignKeys = 40

// newForeignStore returns a closed store of one table and one value file. It writes the first key
// extra times more than the others, and has more keys after them.
func newForeignStore(t testing.TB, value string, extra, more int) (*vfs.Mem, Options) {
	disk := vfs.NewMem()
	o := scrubOptions(disk)
	o.Partitions = 1
	e := open(t, o)
	for range extra {
		put(t, e, key(0), "overwritten", buffered)
	}
	for i := range foreignKeys + more {
		put(t, e, key(i), valueOfForeign(value, i), buffered)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	require.NoError(t, e.Close())
	return disk, o
}

// valueOfForeign is kept apart from every fourth key.
func valueOfForeign(value string, i int) string {
	n := 20
	if i%4 == 0 {
		n = 300
	}
	return fmt.Sprintf("%s %d %s", value, i, strings.Repeat("v", n))
}

// oneFile returns the name and the content of the only file with an extension.
func oneFile(t testing.TB, disk vfs.FS, ext string) (name string, content []byte) {
	for other, b := range files(t, disk) {
		if path.Ext(other) == ext {
			require.Empty(t, name, "a second file")
			name, content = other, b
		}
	}
	require.NotEmpty(t, name)
	return name, content
}

// The checksums of a file do not cover the store. The file of another store, with the same name and
// with other values in the same places, is told from the right one by what the manifest says.
func TestTheFileOfAnotherStoreIsNotServed(t *testing.T) {
	for _, c := range []struct {
		ext         string
		extra, more int
	}{
		{".sst", 1, 0}, // the same size, other numbers
		{".val", 0, 9}, // the same values in the same places, and more
	} {
		t.Run(c.ext, func(t *testing.T) {
			disk, o := newForeignStore(t, "right", 0, 0)
			other, _ := newForeignStore(t, "wrong", c.extra, c.more)
			name, content := oneFile(t, other, c.ext)
			mine, was := oneFile(t, disk, c.ext)
			require.Equal(t, mine, name)
			require.Equal(t, c.ext == ".sst", len(was) == len(content))

			e := open(t, o)
			require.NoError(t, disk.Remove(name))
			require.NoError(t, vfs.WriteAtomic(disk, name, content))
			checkpoint := checkpoint(t, e)
			_, _, err := checkpoint.Fetch(t.Context(), strings.TrimPrefix(name, "data/"), nil)
			require.ErrorIs(t, err, kv.ErrCorrupt, "no backup has it")
			checkpoint.Release()
			require.NoError(t, e.Close())

			_, err = Open("data", o)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			o.AllowDamaged = true
			e = open(t, o)
			lost := 0
			for i := range foreignKeys {
				item, err := e.Get(t.Context(), []byte(key(i)))
				if errors.Is(err, kv.ErrCorrupt) {
					lost++
					continue
				}
				require.NoError(t, err)
				require.Equal(t, valueOfForeign("right", i), string(item.Value))
			}
			require.Positive(t, lost)
			require.NotEmpty(t, e.Damages())
		})
	}
}
