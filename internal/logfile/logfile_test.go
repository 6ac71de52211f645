package logfile

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

const suffix Suffix = ".log"

func TestOnlyNamesOfSegmentsAreListed(t *testing.T) {
	disk := vfs.NewMem()
	none, err := suffix.List(disk, "dir")
	require.NoError(t, err)
	require.Empty(t, none)

	require.NoError(t, disk.MkdirAll("dir"))
	for _, name := range []string{
		"1234567.log", "000002.log", "000010.log", // segments
		"000000.log", "2.log", "0000002.log", "000003.raft", "000004", ".log", "-00005.log", "+00006.log", "99999999999999999999.log",
	} {
		require.NoError(t, vfs.WriteAtomic(disk, "dir/"+name, []byte("x")))
	}
	segments, err := suffix.List(disk, "dir")
	require.NoError(t, err)
	require.Equal(t, []uint64{2, 10, 1234567}, segments)
	require.Equal(t, "dir/000010.log", suffix.Path("dir", 10))
}

func TestAFailedListIsTold(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(faultfs.Op) faultfs.Fault { return faultfs.Fault{Err: syscall.EIO} }))
	_, err := suffix.List(disk, "dir")
	require.True(t, errors.Is(err, syscall.EIO), err)
}

func TestAFrameBelongsToOnePlace(t *testing.T) {
	header := []byte("header of a frame")
	sums := map[uint32]bool{}
	for _, id := range []ID{{1, 1}, {2, 1}, {1, 2}, {2, 2}} {
		for _, off := range []int64{64, 128} {
			sums[id.Checksum(off, header)] = true
			sums[id.Checksum(off, header[1:])] = true
		}
	}
	require.Len(t, sums, 16)
	require.EqualValues(t, 0xe3069283, Sum([]byte("123456789")), "the check value of CRC-32C")
}
