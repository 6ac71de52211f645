package descriptor

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func newDir(t *testing.T) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	return fsys
}

func requireLocked(t *testing.T, fsys vfs.FS) {
	t.Helper()
	_, err := Lock(fsys, "data")
	require.ErrorIs(t, err, vfs.ErrLocked)
	_, err = LockShared(fsys, "data")
	require.ErrorIs(t, err, vfs.ErrLocked)
	assert.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
}

func TestAStoreIsLockedAlsoWithoutItsLockFile(t *testing.T) {
	fsys := newDir(t)
	held, err := Lock(fsys, "data")
	require.NoError(t, err)
	requireLocked(t, fsys)
	require.NoError(t, fsys.Remove(LockPath("data")))
	requireLocked(t, fsys)
	names, err := fsys.List("data")
	require.NoError(t, err)
	assert.Empty(t, names, "the one that was refused made no file")
	require.NoError(t, held.Close())
	again, err := Lock(fsys, "data")
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// A server of an older version locks only the file.
func TestAStoreIsLockedByItsLockFileAlone(t *testing.T) {
	fsys := newDir(t)
	old, err := fsys.Lock(LockPath("data"))
	require.NoError(t, err)
	requireLocked(t, fsys)
	require.NoError(t, old.Close())
	held, err := Lock(fsys, "data")
	require.NoError(t, err, "what was refused holds nothing")
	require.NoError(t, held.Close())
}

func TestADirectoryIsFilledByOneProcess(t *testing.T) {
	fsys := newDir(t)
	held, err := LockFilling(fsys, "data")
	require.NoError(t, err)
	_, err = LockFilling(fsys, "data")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorContains(t, err, "another process fills data")
	_, err = LockShared(fsys, "data")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, held.Close())
	names, err := fsys.List("data")
	require.NoError(t, err)
	assert.Empty(t, names)
}

func TestManyMayReadAndNoneMayWriteMeanwhile(t *testing.T) {
	fsys := newDir(t)
	one, err := LockShared(fsys, "data")
	require.NoError(t, err)
	two, err := LockShared(fsys, "data")
	require.NoError(t, err)
	_, err = Lock(fsys, "data")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, errors.Join(one.Close(), two.Close()))
	names, err := fsys.List("data")
	require.NoError(t, err)
	assert.Empty(t, names)
	held, err := Lock(fsys, "data")
	require.NoError(t, err)
	require.NoError(t, held.Close())
}

func TestWhereDirectoriesCannotBeLockedTheFileIs(t *testing.T) {
	fsys := faultfs.Wrap(newDir(t), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.LockExisting && op.Name == "data" {
			return faultfs.Fault{Err: errors.ErrUnsupported}
		}
		return faultfs.Fault{}
	}))
	held, err := Lock(fsys, "data")
	require.NoError(t, err)
	requireLocked(t, fsys)
	require.NoError(t, held.Close())
	shared, err := LockShared(fsys, "data")
	require.NoError(t, err)
	require.NoError(t, shared.Close())
}

func TestAFailedLockLeavesNothingLocked(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Lock, faultfs.LockExisting} {
		mem := newDir(t)
		fsys := faultfs.Wrap(mem, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind == kind {
				return faultfs.Fault{Err: errors.New("broken")}
			}
			return faultfs.Fault{}
		}))
		_, err := Lock(fsys, "data")
		require.ErrorContains(t, err, "broken")
		held, err := Lock(mem, "data")
		require.NoError(t, err)
		require.NoError(t, held.Close())
	}
}
