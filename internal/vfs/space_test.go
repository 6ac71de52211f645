package vfs

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReservedSpaceIsThereWhenTheDiskIsFull: another file takes all that is free
// between the reservation and the writes.
func TestReservedSpaceIsThereWhenTheDiskIsFull(t *testing.T) {
	m := NewMem()
	m.SetCapacity(1000)
	f, err := m.Create("log")
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 100), 0)
	require.NoError(t, err)
	require.NoError(t, f.Reserve(100, 400))
	free := func() uint64 {
		usage, err := m.Usage("/")
		require.NoError(t, err)
		return usage.Free
	}
	require.EqualValues(t, 500, free())
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 100, size, "a reservation does not change the length")

	other, err := m.Create("other")
	require.NoError(t, err)
	n, err := other.WriteAt(make([]byte, 600), 0)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, 500, n)
	require.EqualValues(t, 0, free())

	_, err = f.WriteAt([]byte("x"), 499)
	require.NoError(t, err, "the space was reserved")
	_, err = f.WriteAt([]byte("x"), 500)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.True(t, IsNoSpace(f.Reserve(500, 1)))

	kill := m.KillImage()
	usage, err := kill.Usage("/")
	require.NoError(t, err)
	require.EqualValues(t, 0, usage.Free, "a killed process does not give it back")
	require.NoError(t, f.Truncate(10))
	require.EqualValues(t, 490, free(), "a truncation does")
	require.NoError(t, f.Close())
	require.NoError(t, other.Close())
}

func TestAReservationThatDoesNotFitHoldsWhatFits(t *testing.T) {
	m := NewMem()
	m.SetCapacity(100)
	f, err := m.Create("log")
	require.NoError(t, err)
	require.True(t, IsNoSpace(f.Reserve(0, 101)))
	other, err := m.Create("other")
	require.NoError(t, err)
	require.True(t, IsNoSpace(other.Reserve(0, 1)))
	require.NoError(t, f.Close())
	require.NoError(t, m.Remove("log"))
	require.NoError(t, other.Reserve(0, 100), "a removed file gives its reservation back")
	require.NoError(t, other.Close())
	require.ErrorIs(t, other.Reserve(0, 1), os.ErrClosed)
}

// TestWhatAFullDiskSays keeps the two reasons for which a store is served without
// writes apart from those for which it must stop.
func TestWhatAFullDiskSays(t *testing.T) {
	wrap := func(err error) error { return &os.PathError{Op: "write", Path: "f", Err: err} }
	for _, err := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		assert.True(t, IsNoSpace(wrap(err)))
		assert.True(t, CannotWrite(wrap(err)))
		assert.False(t, IsReadOnly(wrap(err)))
	}
	assert.True(t, IsReadOnly(wrap(syscall.EROFS)))
	assert.True(t, CannotWrite(wrap(syscall.EROFS)))
	assert.False(t, CannotWrite(wrap(syscall.EIO)))
	assert.False(t, CannotWrite(nil))
}
