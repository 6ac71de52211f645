package raftlog

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// longLog returns a log of several segments.
func longLog(t *testing.T) (*vfs.Mem, *Log) {
	disk := newDisk(t)
	l := mustOpen(t, testOptions(disk, true))
	for i := range uint64(20) {
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, i), Entries: entries(1+i, 1, 1, 200)}))
	}
	return disk, l
}

// direct reads a log without a wrapper.
func direct(fsys vfs.FS) vfs.FS { return fsys }

// Every bit of a segment that has a successor counts, and a check changes nothing.
func TestSegmentsAreChecked(t *testing.T) {
	disk, l := longLog(t)
	verify := func() map[string]error {
		found := map[string]error{}
		require.NoError(t, l.Verify(t.Context(), direct, func(int64) {}, func(name string, err error) error {
			found[name] = err
			return nil
		}))
		return found
	}
	whole := verify()
	require.Len(t, whole, l.Stats().Segments-1)
	for name, err := range whole {
		require.NoError(t, err, name)
	}
	f, err := disk.OpenReadWrite(segmentName(testDir, 2))
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	for at := int64(0); at < size; at += 13 {
		var b [1]byte
		_, err := f.ReadAt(b[:], at)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 1}, at)
		require.NoError(t, err)
		require.ErrorIs(t, verify()[segmentName(testDir, 2)], kv.ErrCorrupt, "offset %d", at)
		_, err = f.WriteAt(b[:], at)
		require.NoError(t, err)
	}
	_, err = f.WriteAt([]byte("x"), size)
	require.NoError(t, err)
	require.ErrorContains(t, verify()[segmentName(testDir, 2)], "bytes follow")
	require.NoError(t, f.Truncate(size-64))
	require.ErrorContains(t, verify()[segmentName(testDir, 2)], "no frame here, but the log continues")
	require.NoError(t, f.Close())

	ended := errors.New("enough")
	require.Equal(t, ended, l.Verify(t.Context(), direct, func(int64) {}, func(string, error) error { return ended }))
	require.NoError(t, CheckSegment(t.Context(), disk, testDir, testStore, 999, nil), "given up meanwhile")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, CheckSegment(gone, disk, testDir, testStore, 1, nil), context.Canceled)
	require.ErrorIs(t, CheckSegment(t.Context(), disk, testDir, testStore+1, 1, nil), kv.ErrCorrupt)
	for i := range 4 {
		faulty := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, false))
		require.ErrorIs(t, CheckSegment(t.Context(), faulty, testDir, testStore, 1, func(int64) {}), syscall.EIO)
	}
	require.NoError(t, l.Close())
}

// Check finds what Open does, and changes nothing.
func TestAStoppedLogIsChecked(t *testing.T) {
	disk, l := longLog(t)
	image := disk.KillImage() // without the note of Close
	require.NoError(t, l.Close())
	for name, disk := range map[string]*vfs.Mem{"closed": disk, "killed": image} {
		found, err := Check(readOnly{disk}, testDir, testStore)
		require.NoError(t, err, name)
		require.Equal(t, l.Stats().Segments, found.Segments)
		require.Zero(t, found.DroppedBytes)
		require.Zero(t, found.Last, "of group 0")
	}
	last := segmentName(testDir, uint64(l.Stats().Segments))
	f, err := image.OpenReadWrite(last)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 100), size)
	require.NoError(t, errors.Join(err, f.Close()))
	found, err := Check(readOnly{image}, testDir, testStore)
	require.NoError(t, err)
	require.EqualValues(t, 100, found.DroppedBytes)
	require.NoError(t, disk.Remove(segmentName(testDir, 2)))
	_, err = Check(readOnly{disk}, testDir, testStore)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = Check(vfs.NewMem(), testDir, testStore)
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

// readOnly is a file system that fails the test of what writes.
type readOnly struct{ vfs.FS }

func (readOnly) OpenReadWrite(name string) (vfs.File, error) {
	return nil, fmt.Errorf("%s is to be written", name)
}
func (readOnly) Create(name string) (vfs.File, error) {
	return nil, fmt.Errorf("%s is to be written", name)
}
func (readOnly) Remove(name string) error { return fmt.Errorf("%s is to be removed", name) }

// After the first damage, which ends a start, every other segment is judged by itself.
func TestEveryDamagedSegmentIsTold(t *testing.T) {
	disk, l := longLog(t)
	require.NoError(t, l.Close())
	_, err := Check(disk, testDir, testStore)
	require.NoError(t, err)
	nums, err := listSegments(disk, testDir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(nums), 4)
	for _, damaged := range [][]uint64{{nums[0]}, {nums[len(nums)-1]}, {nums[0], nums[2]}, {nums[1], nums[len(nums)-1]}, nums} {
		image := disk.KillImage()
		want := map[string]int{}
		for _, num := range damaged {
			f, err := image.OpenReadWrite(segmentName(testDir, num))
			require.NoError(t, err)
			var b [1]byte
			_, err = f.ReadAt(b[:], 100)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[0] ^ 1}, 100)
			require.NoError(t, errors.Join(err, f.Close()))
			want[segmentName(testDir, num)] = 1
		}
		_, refused := Check(image, testDir, testStore)
		require.ErrorIs(t, refused, kv.ErrCorrupt)
		got := map[string]int{}
		for _, damage := range kv.Corruptions(Damages(image, testDir, testStore, refused)) {
			got[damage.File]++
		}
		require.Equal(t, want, got)
	}
}
