package inspect

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/escape"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// newValueStore creates a store with value files that contain some garbage, and returns
// the store's content.
func newValueStore(t *testing.T) (*vfs.Mem, map[string]string) {
	t.Helper()
	fsys := vfs.NewMem()
	e, err := engine.Open("data", engine.Options{
		FS: fsys, Partitions: 1, SegmentBytes: 1 << 20, ValueThreshold: 100,
	})
	require.NoError(t, err)
	want := map[string]string{}
	for round := range 2 {
		for i := round; i < 40; i += 1 + 2*round {
			key := fmt.Sprintf("key%03d", i)
			want[key] = fmt.Sprintf("%d %s", round, strings.Repeat("v", 90+i))
			_, err := e.Put(t.Context(), []byte(key), []byte(want[key]), kv.WriteOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, e.CompactAll(t.Context()))
	}
	require.NoError(t, e.Close())
	return fsys, want
}

func valueFiles(r *Report) (names []string) {
	for _, f := range r.Files {
		if f.Kind == KindValues {
			names = append(names, f.Path)
		}
	}
	return names
}

func TestCheckReadsValueFiles(t *testing.T) {
	fsys, _ := newValueStore(t)
	r := check(t, fsys)
	require.NoError(t, r.Err())
	names := valueFiles(r)
	require.Len(t, names, 2)
	require.Equal(t, 2, r.ValueFiles)
	require.NotZero(t, r.Garbage)
	for _, name := range names {
		whole, err := readSmall(fsys, path.Join("data", name))
		require.NoError(t, err)
		for at := 0; at < len(whole); at += 7 {
			damaged := append([]byte(nil), whole...)
			damaged[at] ^= 1
			require.NoError(t, vfs.WriteAtomic(fsys, path.Join("data", name), damaged))
			r := check(t, fsys)
			require.True(t, isDamage(r.Err()), "byte %d", at)
			require.Contains(t, damagedPaths(r), name)
		}
		require.NoError(t, vfs.WriteAtomic(fsys, path.Join("data", name), whole[:len(whole)-1]))
		r := check(t, fsys)
		require.LessOrEqual(t, strings.Count(r.Err().Error(), "no footer"), 2, "once for the file and once for the table: %v", r.Err())
		require.NoError(t, fsys.Remove(path.Join("data", name)))
		r = check(t, fsys)
		require.True(t, isDamage(r.Err()))
		require.Contains(t, damagedPaths(r), name, "it is missing")
		require.NoError(t, vfs.WriteAtomic(fsys, path.Join("data", name), whole))
	}
	require.NoError(t, check(t, fsys).Err())
}

func TestDumpPrintsValuesApart(t *testing.T) {
	fsys, want := newValueStore(t)
	r := check(t, fsys)
	var all, tables strings.Builder
	for _, f := range r.Files {
		var out strings.Builder
		switch f.Kind {
		case KindValues:
			require.NoError(t, Dump(fsys, path.Join("data", f.Path), &out, DumpOptions{Values: true}))
			all.WriteString(out.String())
		case KindBase:
			require.NoError(t, Dump(fsys, path.Join("data", f.Path), &out, DumpOptions{}))
			tables.WriteString(out.String())
		case KindManifest:
			require.NoError(t, Dump(fsys, path.Join("data", f.Path), &out, DumpOptions{}))
			require.Contains(t, out.String(), "values of", "%s", out.String())
			require.Contains(t, out.String(), ", needed ")
		}
	}
	for key, value := range want {
		separated := strings.Contains(all.String(), escape.Quote([]byte(value)))
		assert.Equal(t, len(value) >= 100, separated, key)
		assert.True(t, strings.Contains(tables.String(), escape.Quote([]byte(key))), key)
	}
	require.Regexp(t, `put "key0\d\d" at offset \d+ of value file \d+, 1\d\d bytes`, tables.String())
	require.ErrorIs(t, Dump(fsys, "000013.val", &all, DumpOptions{}), kv.ErrInvalidArgument, "read where it lies")
}
