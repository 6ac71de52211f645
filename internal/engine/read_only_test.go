package engine

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// unwritable is a disk on which nothing can be changed.
func unwritable(inner vfs.FS) vfs.FS {
	return faultfs.Wrap(inner, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Open, faultfs.List, faultfs.Stat, faultfs.LockExisting, faultfs.Usage, faultfs.Read, faultfs.Size, faultfs.Close:
			return faultfs.Fault{}
		}
		return faultfs.Fault{Err: syscall.EROFS}
	}))
}

// After a kill or a power cut, a store that is opened read-only shows what recovery would
// find, and writes nothing.
func TestReadOnlyShowsWhatRecoveryWouldAndChangesNothing(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	o.FlushKeys = 20
	e := open(t, o)
	var images []*vfs.Mem
	for i := range 200 {
		level := []kv.WriteOptions{synced, {Durability: kv.DurabilityBuffered}}[i%2]
		put(t, e, fmt.Sprintf("key/%d", i%60), fmt.Sprint(i), level)
		if i%3 == 0 {
			del(t, e, fmt.Sprintf("key/%d", i%7), level)
		}
		if i%20 == 19 {
			images = append(images, disk.KillImage(), disk.CrashImage(vfs.DropAll, nil))
		}
	}
	require.NoError(t, e.Close())
	images = append(images, disk)
	for i, image := range images {
		o := small(unwritable(image))
		o.ReadOnly = true
		r, err := Open("data", o)
		require.NoError(t, err, "image %d", i)
		second, err := Open("data", o)
		require.NoError(t, err, "many may read")
		require.NoError(t, second.Close())
		_, err = Open("data", small(image))
		require.ErrorIs(t, err, vfs.ErrLocked, "but not while one writes")
		seen := contents(t, r)
		for _, write := range []func() error{
			func() error { _, err := r.Put(t.Context(), []byte("a"), nil, synced); return err },
			func() error {
				var b kv.WriteBatch
				b.Put([]byte("a"), nil)
				_, err := r.Apply(t.Context(), &b, synced)
				return err
			},
			func() error { return r.Flush(t.Context()) },
			func() error { return r.CompactAll(t.Context()) },
		} {
			require.ErrorIs(t, write(), kv.ErrReadOnly)
		}
		s, err := r.BeginSnapshot(t.Context(), 0)
		require.NoError(t, err)
		r.ReleaseSnapshot(s.ID)
		assert.True(t, r.Stats().ReadOnly)
		require.NoError(t, r.Close())

		w := open(t, small(image))
		require.Equal(t, contents(t, w), seen, "image %d", i)
		_, err = Open("data", o)
		require.ErrorIs(t, err, vfs.ErrLocked, "no reader while one writes")
		require.NoError(t, w.Close())
	}
}

func TestReadOnlyMakesNoStore(t *testing.T) {
	disk := vfs.NewMem()
	o := small(disk)
	o.ReadOnly = true
	_, err := Open("data", o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, disk.MkdirAll("data"))
	_, err = Open("data", o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	names, err := disk.List("data")
	require.NoError(t, err)
	require.Empty(t, names)
}
