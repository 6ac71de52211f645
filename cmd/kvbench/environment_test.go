package main

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestTheEnvironmentHasTheTimeOfASync(t *testing.T) {
	dir := t.TempDir()
	e, err := readEnvironment(dir)
	require.NoError(t, err)
	assert.Positive(t, e.SyncNanos)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)

	e, err = readEnvironment("")
	require.NoError(t, err)
	assert.Zero(t, e.SyncNanos, "the data of a server are elsewhere")
}

func TestASyncThatCannotBeMeasuredIsAnError(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, kind := range []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Sync, faultfs.Remove} {
		fs := faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind == kind {
				return faultfs.Fault{Err: broken}
			}
			return faultfs.Fault{}
		}))
		_, err := measureSync(fs, "")
		require.ErrorIs(t, err, broken, "%v", kind)
		assert.ErrorContains(t, err, "how long a sync takes")
	}
}
