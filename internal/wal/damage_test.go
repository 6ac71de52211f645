package wal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// damaged is a small log of three segments for tests to damage.
type damaged struct {
	files map[uint64][]byte
	recs  []rec
	safe  int // number of records before the last synced mark
}

// closedLog was closed in order: every record is safe.
func closedLog(t testing.TB) damaged {
	w := newWorld(t)
	w.o.SegmentBytes = 600
	w.open()
	for i := range 6 {
		w.put(130+i, synced)
	}
	w.close()
	return damaged{contents(t, w.disk), w.promises.appended, 6}
}

// killedLog is the log of a process that was killed right after a sync: the last frame
// says that all records but the last were synced.
func killedLog(t testing.TB) damaged {
	w := newWorld(t)
	w.o.SegmentBytes = 600
	w.open()
	for i := range 6 {
		w.put(130+i, synced)
	}
	files := contents(t, w.disk)
	w.close()
	return damaged{files, w.promises.appended, 5}
}

// verify opens a damaged log and checks that it is refused, or that no record is missing
// but those that may be.
func (d damaged) verify(t testing.TB, files map[uint64][]byte, what string) (refused bool) {
	disk := diskOf(t, files)
	o := testOptions(disk)
	o.Fresh, o.idleMark = false, time.Hour
	before := disk.Steps()
	l, recs, r, err := openAll(o)
	if err != nil {
		require.Truef(t, errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion), "%s: %v", what, err)
		require.Equal(t, before, disk.Steps(), "refused, and yet touched: %s", what)
		var damage *kv.CorruptionError
		if errors.As(err, &damage) {
			require.Contains(t, damage.File, testDir, what)
		}
		return true
	}
	require.NoError(t, l.Close())
	require.GreaterOrEqual(t, len(recs), d.safe, "silently lost: %s", what)
	require.Equal(t, d.recs[:len(recs)], recs, what)
	require.False(t, r.Clean && len(recs) < len(d.recs), what)
	return false
}

func (d damaged) spoil(num uint64, f func(b []byte) []byte) map[uint64][]byte {
	files := maps.Clone(d.files)
	files[num] = f(slices.Clone(files[num]))
	return files
}

func TestDamageIsNeverSilent(t *testing.T) {
	for name, make := range map[string]func(testing.TB) damaged{"closed": closedLog, "killed": killedLog} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := make(t)
			nums := slices.Sorted(maps.Keys(d.files))
			require.GreaterOrEqual(t, len(nums), 3)
			require.False(t, d.verify(t, d.files, "nothing"))
			refused := 0
			count := func(r bool) {
				if r {
					refused++
				}
			}
			for _, num := range nums {
				size := len(d.files[num])
				for off := range size {
					if off%imageShare() != 0 {
						continue
					}
					count(d.verify(t, d.spoil(num, func(b []byte) []byte {
						b[off] ^= 1 << (off % 8)
						return b
					}), fmt.Sprintf("segment %d: bit of byte %d flipped", num, off)))
					count(d.verify(t, d.spoil(num, func(b []byte) []byte { return b[:off] }),
						fmt.Sprintf("segment %d cut to %d bytes", num, off)))
				}
				for sector := 0; sector < size; sector += 512 {
					count(d.verify(t, d.spoil(num, func(b []byte) []byte {
						clear(b[sector:min(size, sector+512)])
						return b
					}), fmt.Sprintf("segment %d: sector at %d zeroed", num, sector)))
				}
			}
			t.Logf("%d refused", refused)
			require.Positive(t, refused)
		})
	}
}

func TestMissingSegmentIsDamage(t *testing.T) {
	for _, d := range []damaged{closedLog(t), killedLog(t)} {
		for num := range d.files {
			files := maps.Clone(d.files)
			delete(files, num)
			if r := d.verify(t, files, fmt.Sprintf("segment %d removed", num)); !r {
				require.NotContains(t, usedSegments(t, d), num, "a segment in use was missing, and recovery did not notice")
			}
		}
	}
}

// usedSegments returns the segments that hold records.
func usedSegments(t testing.TB, d damaged) (used []uint64) {
	disk := diskOf(t, d.files)
	for num := range d.files {
		_, err := Dump(disk, segmentName(testDir, num), func(f FrameInfo) error {
			if f.Kind == FrameData {
				used = append(used, num)
			}
			return nil
		})
		require.NoError(t, err)
	}
	return used
}

// TestMisplacedFrames moves whole, valid frames: to another segment, to another
// offset, and from another store.
func TestMisplacedFrames(t *testing.T) {
	d := closedLog(t)
	nums := slices.Sorted(maps.Keys(d.files))
	const frame = 128 // the first data frame of each segment is here
	first, second := d.files[nums[0]], d.files[nums[1]]
	require.True(t, d.verify(t, d.spoil(nums[1], func(b []byte) []byte {
		copy(b[frame:], first[frame:frame+200])
		return b
	}), "frame of another segment"))
	require.True(t, d.verify(t, d.spoil(nums[1], func(b []byte) []byte { return slices.Clone(first) }), "another segment"))
	require.True(t, d.verify(t, d.spoil(nums[1], func(b []byte) []byte {
		return append(slices.Clone(b[:frame]), append(slices.Clone(second[frame:]), second[frame:]...)...)
	}), "frames twice"))

	disk := diskOf(t, d.files)
	o := testOptions(disk)
	o.StoreID++
	_, _, _, err := openAll(o)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "of store")
}

func TestMissingLogIsDamage(t *testing.T) {
	o := testOptions(newDisk(t))
	o.Fresh = false
	var told error
	o.Events = &event.Listener{Corruption: func(err error) { told = err }}
	_, _, _, err := openAll(o)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, err, told)
}

// A last segment that was cut after a crash has a torn tail, or ends at a frame. It is known to be
// cut if tables hold a number that it does not reach, because that was synced.
func TestALogThatEndsBeforeTheTablesIsDamage(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.idleMark = time.Hour
	l, _, _ := mustOpen(t, o)
	var last rec
	for range 3 {
		last = put(t, l, "synced", 1, synced)
	}
	disk = disk.KillImage()
	require.NoError(t, l.Close())
	name := segmentName(testDir, 1)
	var frames []int64
	info, err := Dump(disk, name, func(f FrameInfo) error {
		frames = append(frames, f.Offset)
		return nil
	})
	require.NoError(t, err)
	o.Fresh, o.MinSeq = false, last.base
	for _, cut := range []int64{frames[len(frames)-1], frames[len(frames)-1] + 8, info.End - 1, info.End} {
		image := disk.KillImage()
		f, err := image.OpenReadWrite(name)
		require.NoError(t, err)
		require.NoError(t, errors.Join(f.Truncate(cut), f.Close()))
		o.FS = image
		_, err = Replay(o, func(Record) error { return nil })
		l, _, _, openErr := openAll(o)
		if cut == info.End {
			require.NoError(t, errors.Join(err, openErr))
			require.NoError(t, l.Close())
			continue
		}
		for _, err := range []error{err, openErr} {
			require.ErrorIs(t, err, kv.ErrCorrupt, "cut at %d of %d", cut, info.End)
			require.ErrorContains(t, err, "its end is missing")
		}
	}
}

func TestStaleOriginalBesideItsCopy(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.put(10, synced)
	killed := w.disk.KillImage()
	w.close()

	o := w.o
	o.FS = killed
	old := contents(t, killed)
	l, _ := openCopying(t, o)
	put(t, l, "newer", 1, synced)
	require.NoError(t, l.Close())
	files := contents(t, killed)
	maps.Copy(files, old)
	o.FS = diskOf(t, files)
	_, _, _, err := openAll(o)
	require.ErrorIs(t, err, kv.ErrCorrupt, "a deleted segment that exists again would hide the newer record")
	require.ErrorContains(t, err, "exists again")
}

func TestTornTailIsDroppedAndTold(t *testing.T) {
	d := killedLog(t)
	last := slices.Max(usedSegments(t, d))
	disk := diskOf(t, d.spoil(last, func(b []byte) []byte {
		end := len(b) - 1
		for b[end] == 0 {
			end--
		}
		b[end] ^= 1
		return b
	}))
	var told []event.TailDrop
	o := testOptions(disk)
	o.Fresh = false
	o.Events = &event.Listener{TailDropped: func(d event.TailDrop) { told = append(told, d) }}
	l, recs, r := mustOpen(t, o)
	require.Len(t, recs, len(d.recs)-1)
	require.Len(t, told, 1)
	require.Equal(t, segmentName(testDir, last), told[0].File)
	require.Equal(t, told[0].Bytes, r.DroppedBytes)
	require.Positive(t, told[0].Bytes)
	require.False(t, r.Clean)
	require.NoError(t, l.Close())
}

func TestUnknownVersionIsNotDamage(t *testing.T) {
	d := closedLog(t)
	files := d.spoil(slices.Max(slices.Collect(maps.Keys(d.files))), func(b []byte) []byte {
		b[8] = segmentVersion + 1
		sum := logfile.HeaderChecksum(b[:segmentHeaderBytes])
		b[12], b[13], b[14], b[15] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		return b
	})
	disk := diskOf(t, files)
	steps := disk.Steps()
	o := testOptions(disk)
	_, _, _, err := openAll(o)
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
	require.Equal(t, steps, disk.Steps())
	report, err := Verify(disk, testDir, testStore, func(Record) error { return nil })
	require.NoError(t, err)
	require.ErrorIs(t, report.Problem, kv.ErrUnsupportedVersion)
}

// TestFilesOfOthersStay: the log neither reads nor removes files that are not its own.
func TestFilesOfOthersStay(t *testing.T) {
	disk := newDisk(t)
	require.NoError(t, disk.MkdirAll(testDir))
	strangers := []string{"000001.sst", "1.wal", "0000001.wal", "000000.wal", "core", "x.wal"}
	for _, name := range strangers {
		require.NoError(t, vfs.WriteAtomic(disk, testDir+"/"+name, []byte("not mine")))
	}
	l, _, _ := mustOpen(t, testOptions(disk))
	put(t, l, "a", 1, synced)
	require.NoError(t, l.Close())
	names, err := disk.List(testDir)
	require.NoError(t, err)
	require.Subset(t, names, strangers)
}
