package wal

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// countFS counts the bytes written to files.
type countFS struct {
	vfs.FS
	bytes int64
}

type countFile struct {
	vfs.File
	fs *countFS
}

func (f *countFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.fs.bytes += int64(n)
	return n, err
}

func (c *countFS) Create(name string) (vfs.File, error) { return c.wrap(c.FS.Create(name)) }

func (c *countFS) OpenReadWrite(name string) (vfs.File, error) {
	return c.wrap(c.FS.OpenReadWrite(name))
}

func (c *countFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &countFile{f, c}, nil
}

// Recovery writes what no frame says was synced and the beginning of a new segment,
// however long the log and its last segments are, and on a nearly full disk it needs no
// more space than that: here a tail of 40 KB after 3 MB in the same segment.
func TestRecoveryWritesOnlyWhatIsNotClaimed(t *testing.T) {
	const record, free = 10_000, 48 << 10
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.idleMark = 4<<20, time.Hour
	l, _, _ := mustOpen(t, o)
	body := func(i int) string { return fmt.Sprintf("%0*d", record, i) }
	want := make([]rec, 0, 305)
	for i := range 300 {
		want = append(want, put(t, l, body(i), 1, buffered))
	}
	require.NoError(t, l.WaitSynced(background, l.Written()))
	for i := range 5 { // the first says that what is before it was synced
		want = append(want, put(t, l, body(300+i), 1, buffered))
	}
	image := disk.KillImage()
	require.NoError(t, l.Close())

	usage, err := image.Usage("/")
	require.NoError(t, err)
	image.SetCapacity(int64(usage.Total-usage.Free) + free)
	count := &countFS{FS: image}
	o.FS, o.Fresh = count, false
	l, recs, r := mustOpen(t, o)
	require.NoError(t, l.Suspended(), "recovery needs more than the %d KiB that are free", free>>10)
	require.Equal(t, want, recs)
	require.Zero(t, r.DroppedBytes)
	require.LessOrEqual(t, count.bytes, int64(5*(record+200)+firstZeros+4<<10), "bytes written by recovery")
	t.Logf("recovery of %d records wrote %d bytes", len(recs), count.bytes)

	// What was read is on the disk: no power cut takes it.
	o.FS = image.CrashImage(vfs.DropAll, nil)
	image.SetCapacity(1 << 30)
	require.NoError(t, l.Close())
	cut, recs, _ := mustOpen(t, o)
	require.Equal(t, want, recs)
	require.NoError(t, cut.Close())
}

// TestASuccessorThatWasNeverUsed recovers a log whose last segment has an end frame, and
// in whose next segment a power cut left a frame in the middle, but no start frame. The
// log continues in that segment without the frame, whichever operation fails first.
func TestASuccessorThatWasNeverUsed(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.idleMark = 600, time.Hour
	l, _, _ := mustOpen(t, o)
	var want []rec
	for i := 0; l.mu.active.header.num == 1; i++ { // buffered, so that none is prepared
		want = append(want, put(t, l, payload(i), 1, buffered))
	}
	lost := want[len(want)-1]
	want = want[:len(want)-1]
	killed := disk.KillImage()
	require.NoError(t, l.Close())
	f, err := killed.OpenReadWrite(segmentName(testDir, 2))
	require.NoError(t, err)
	_, err = f.WriteAt(zeros[:frameHeaderBytes], segmentHeaderBytes)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		for i, fired := 0, true; fired; i++ {
			image := killed.KillImage()
			fsys := faultfs.Wrap(image, faultfs.At(i, false, faultfs.Fault{Err: cause, Short: 20}))
			o.FS, o.Fresh = fsys, false
			l, recs, _, err := openAll(o)
			if !fsys.Fired() {
				require.NoError(t, err)
				require.EqualValues(t, 2, l.mu.active.header.num)
				require.Greater(t, i, 10)
			}
			if err == nil {
				require.Equal(t, want, recs)
				if err := l.Close(); err != nil {
					require.True(t, fsys.Fired(), "%v", err)
				}
				fired = fsys.Fired()
			}
			o.FS = image.CrashImage(vfs.KeepAll, nil)
			l, recs, r := mustOpen(t, o)
			require.Equal(t, want, recs, "operation %d fails with %v", i, cause)
			require.Greater(t, r.NextSeq, lost.base)
			next := put(t, l, "next", 1, synced)
			require.NoError(t, l.Close())
			l, recs, _ = mustOpen(t, o)
			require.Equal(t, append(slices.Clone(want), next), recs)
			require.NoError(t, l.Close())
		}
	}
}

// TestRecoveryDoesNotTrustThePageCache makes each sync of a life fail in turn, as on
// Linux: the bytes stay readable and will never reach the disk. No power cut takes what
// recovery then replays.
func TestRecoveryDoesNotTrustThePageCache(t *testing.T) {
	runs, tails := 0, 0
	for i, fired := 0, true; fired; i++ {
		disk := newDisk(t)
		fsys := faultfs.Wrap(disk, faultfs.At(i, false, faultfs.Fault{Err: syscall.EIO, DropDirty: true}, faultfs.OnKind(faultfs.Sync)))
		o := testOptions(fsys)
		o.SegmentBytes, o.idleMark = 600, time.Hour
		l, _, _, err := openAll(o)
		fired = fsys.Fired()
		if err != nil {
			continue // there is no log yet
		}
		for j := range 12 {
			w := make(signal, 1)
			_, pos, err := appendTo(l, []byte(payload(j)+string(make([]byte, 150))), 1, buffered, w, nil)
			if err == nil {
				l.Flush()
				if j%5 == 4 {
					err = l.WaitSynced(background, pos)
				}
			}
			if err != nil {
				require.ErrorIs(t, err, syscall.EIO)
				break
			}
		}
		if err := l.Close(); err != nil {
			require.ErrorIs(t, err, syscall.EIO)
		}
		fired = fsys.Fired()
		o.FS, o.Fresh = disk, false
		l, recs, r := mustOpen(t, o)
		o.FS = disk.CrashImage(vfs.DropAll, nil)
		cut, again, _ := mustOpen(t, o)
		require.Equal(t, recs, again, "sync %d failed", i)
		require.NoError(t, cut.Close())
		require.NoError(t, l.Close())
		runs++
		if !r.Clean && len(recs) > 0 {
			tails++
		}
	}
	t.Logf("%d runs, %d of which left records to recover", runs, tails)
	require.Greater(t, tails, 3)
}
