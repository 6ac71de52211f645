package wal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden files again")

// goldenDir holds a small log as hex dumps: a segment that recovery ended, one that was
// closed in order, and the one that follows it. copiedGoldenDir and oldGoldenDir hold a
// log with the same records that recovery copied, as earlier versions of kvd did, the
// latter in format version 1. Together they have every kind of frame.
const (
	goldenDir       = "testdata/v2"
	copiedGoldenDir = "testdata/v2-copied"
	oldGoldenDir    = "testdata/v1"
)

// TestGolden: the log of a fixed history has exactly these bytes, and they are read back.
func TestGolden(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.idleMark = time.Hour
	l, _, _ := mustOpen(t, o)
	// Buffered, so that no segment is prepared: its number would depend on when.
	write := func(payload string, units uint32) rec {
		r := put(t, l, payload, units, buffered)
		require.NoError(t, l.WaitSynced(background, l.Written()))
		return r
	}
	write("given back", 1)
	require.NoError(t, l.Close())
	o.Fresh = false
	l, _, _ = mustOpen(t, o)
	want := []rec{write("copied", 2), write(string(bytes.Repeat([]byte{0xab}, 100)), 3)}
	killed := disk.KillImage()
	require.NoError(t, l.Close())
	o.FS = killed
	l, _, _ = mustOpen(t, o)
	want = append(want, write("", 1))
	require.NoError(t, l.Close())
	l, _, _ = mustOpen(t, o)
	want = append(want, write("behind the gap", 1))
	require.NoError(t, l.Reclaim(1))
	require.NoError(t, l.Close())

	got := contents(t, killed)
	if *update {
		require.NoError(t, os.MkdirAll(goldenDir, 0o755))
		for num, b := range got {
			require.NoError(t, os.WriteFile(goldenFile(num), []byte(hex.Dump(b)), 0o644))
		}
	}
	for num := range got {
		dump, err := os.ReadFile(goldenFile(num))
		require.NoError(t, err)
		require.Equal(t, string(dump), hex.Dump(got[num]), "segment %d", num)
	}
	kinds := map[FrameKind]bool{}
	for _, dir := range []string{goldenDir, copiedGoldenDir, oldGoldenDir} {
		segments := goldenLog(t, dir)
		if dir == goldenDir {
			require.Len(t, segments, len(got))
		}
		disk := diskOf(t, segments)
		for num := range segments {
			_, err := Dump(disk, segmentName(testDir, num), func(f FrameInfo) error {
				kinds[f.Kind] = true
				return nil
			})
			require.NoError(t, err)
		}
		o.FS = disk
		l, recs, r := mustOpen(t, o)
		require.True(t, r.Clean)
		require.Equal(t, want, recs)
		require.Equal(t, kv.SeqNum(recoveryGap+8), r.LastSeq)
		require.NoError(t, l.Close())
	}
	require.Len(t, kinds, len(frameKindNames))
}

// goldenLog reads the segments of a golden log.
func goldenLog(t *testing.T, dir string) map[uint64][]byte {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	segments := map[uint64][]byte{}
	for _, file := range files {
		num, ok := segmentSuffix.Parse(strings.TrimSuffix(file.Name(), ".hex"))
		require.True(t, ok, file.Name())
		dump, err := os.ReadFile(filepath.Join(dir, file.Name()))
		require.NoError(t, err)
		segments[num] = parseHexDump(t, string(dump))
	}
	return segments
}

func goldenFile(num uint64) string {
	return filepath.Join(goldenDir, strings.TrimPrefix(segmentName("", num), "/")+".hex")
}

func parseHexDump(t testing.TB, dump string) (b []byte) {
	for line := range strings.Lines(dump) {
		fields := strings.Fields(strings.SplitN(line, "|", 2)[0])
		for _, f := range fields[min(1, len(fields)):] {
			v, err := hex.DecodeString(f)
			require.NoError(t, err)
			b = append(b, v...)
		}
	}
	return b
}

func TestSegmentHeaderRoundTrip(t *testing.T) {
	for _, h := range []segmentHeader{
		{store: 1, num: 1},
		{store: ^uint64(0), num: 1 << 40, prev: 7, replaces: 9, closed: 1 << 33},
	} {
		got, err := decodeSegmentHeader("x", h.encode())
		require.NoError(t, err)
		require.Equal(t, h, got)
	}
	for _, h := range []segmentHeader{{num: 0}, {num: 3, prev: 3}, {num: 3, replaces: 3}, {num: 3, closed: -1}} {
		_, err := decodeSegmentHeader("x", h.encode())
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
	for n := range segmentHeaderBytes {
		_, err := decodeSegmentHeader("x", (&segmentHeader{num: 1}).encode()[:n])
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
}

func TestSegmentNames(t *testing.T) {
	for name, want := range map[string]uint64{
		"000001.wal": 1, "999999.wal": 999999, "1000000.wal": 1000000,
		"000000.wal": 0, "1.wal": 0, "0000001.wal": 0, "00000a.wal": 0, "000001.sst": 0, "000001": 0, "+00001.wal": 0, ".wal": 0,
	} {
		num, ok := segmentSuffix.Parse(name)
		require.Equal(t, want != 0, ok, name)
		if ok {
			require.Equal(t, want, num)
		}
	}
}

// TestFramesThatMakeNoSense have good checksums: only a bug in their writer makes them.
func TestFramesThatMakeNoSense(t *testing.T) {
	record := func(base kv.SeqNum, units uint32) []byte { return appendRecord(nil, base, units, []byte("x")) }
	for name, f := range map[string]frame{
		"unknown kind":          {kind: 99, next: 1},
		"no kind":               {next: 1},
		"mark with records":     {kind: FrameMark, next: 1, records: 1},
		"mark with a payload":   {kind: FrameMark, next: 1, payload: record(1, 1)},
		"numbers go back":       {kind: FrameMark, prev: 2, next: 2},
		"number too large":      {kind: FrameMark, next: kv.MaxSeqNum + 2},
		"synced offset":         {kind: FrameMark, next: 1, synced: address{1, -1}},
		"no records":            {kind: FrameData, next: 1},
		"wrong count":           {kind: FrameData, next: 2, records: 2, payload: record(1, 1)},
		"wrong next":            {kind: FrameData, next: 3, records: 1, payload: record(1, 1)},
		"record not above prev": {kind: FrameData, prev: 1, next: 2, records: 1, payload: record(1, 1)},
		"record without units":  {kind: FrameData, next: 1, records: 1, payload: record(1, 0)},
		"record cut short":      {kind: FrameData, next: 2, records: 1, payload: record(1, 1)[:16]},
		"half a record header":  {kind: FrameData, next: 2, records: 1, payload: record(1, 1)[:9]},
		"records go back":       {kind: FrameData, next: 2, records: 2, payload: append(record(5, 1), record(1, 1)...)},
		"base beyond 63 bits":   {kind: FrameData, next: 2, records: 1, payload: record(1<<63, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			f.off = segmentHeaderBytes
			h := segmentHeader{store: testStore, num: 1}
			frame := sealFrame(append(make([]byte, frameHeaderBytes), f.payload...), h.id(), &f)
			disk := diskOf(t, map[uint64][]byte{1: append(h.encode(), frame...)})
			_, err := Dump(disk, segmentName(testDir, 1), func(FrameInfo) error { return nil })
			require.ErrorIs(t, err, kv.ErrCorrupt)
			_, _, _, err = openAll(testOptions(disk))
			require.ErrorIs(t, err, kv.ErrCorrupt)
		})
	}
}

// TestFramesInTheWrongPlace are whole, and the log around them is too.
func TestFramesInTheWrongPlace(t *testing.T) {
	start := frame{kind: FrameStart, next: 1, low: 1}
	mark := frame{kind: FrameMark, next: 1, low: 1}
	for name, frames := range map[string][]frame{
		"no start":                 {mark},
		"two starts":               {start, start},
		"copied, of nothing":       {start, {kind: FrameCopied, next: 1, low: 1}},
		"after a close frame":      {start, {kind: FrameClose, next: 1, low: 1}, mark},
		"does not follow":          {start, {kind: FrameMark, prev: 5, next: 6, low: 1}},
		"claims too much":          {start, {kind: FrameMark, next: 1, low: 1, synced: address{1, 4096}}},
		"claims another segment":   {start, {kind: FrameMark, next: 1, low: 1, synced: address{2, 0}}},
		"the end, but no next one": {start, {kind: FrameEnd, next: 1, low: 1}},
		"bytes after the end":      {start, {kind: FrameEnd, next: 1, low: 1}, mark},
	} {
		t.Run(name, func(t *testing.T) {
			disk := diskOf(t, map[uint64][]byte{1: buildSegment(segmentHeader{store: testStore, num: 1}, frames)})
			_, _, _, err := openAll(testOptions(disk))
			require.ErrorIs(t, err, kv.ErrCorrupt)
		})
	}
}

func buildSegment(h segmentHeader, frames []frame) []byte {
	b := h.encode()
	for _, f := range frames {
		f.off = int64(len(b))
		b = append(b, sealFrame(append(make([]byte, frameHeaderBytes), f.payload...), h.id(), &f)...)
	}
	return b
}

// FuzzSegment feeds a decoder any bytes as a segment. The decoder must not panic, nor
// allocate much more than its input, and each frame that it accepts must be what the
// encoder would write.
func FuzzSegment(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.hex"))
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		dump, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(parseHexDump(f, string(dump)))
	}
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		fixChecksums(b)
		disk := diskOf(t, map[uint64][]byte{1: b})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		end := int64(segmentHeaderBytes)
		info, err := Dump(disk, segmentName(testDir, 1), func(info FrameInfo) error {
			require.Equal(t, end, info.Offset)
			end += info.Bytes
			again := frame{
				off: info.Offset, kind: info.Kind, records: uint32(len(info.Records)), prev: info.Prev, next: info.Next,
				low: info.Low, synced: address{info.SyncedSegment, info.SyncedOffset},
			}
			buf := make([]byte, frameHeaderBytes)
			for _, r := range info.Records {
				buf = appendRecord(buf, r.Base, r.Units, r.Payload)
			}
			id := logfile.ID{}
			if h, err := decodeSegmentHeader("", b[:segmentHeaderBytes]); err == nil {
				id = h.id()
			}
			require.Equal(t, b[info.Offset:end], sealFrame(buf, id, &again))
			return nil
		})
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64*len(b)+1<<20))
		if err == nil {
			require.Equal(t, end, info.End)
		}
		_, err = Empty(disk, segmentName(testDir, 1))
		require.True(t, err == nil || isDamage(err), "%v", err)
		l, _, _, err := openAll(Options{FS: disk, Dir: testDir, StoreID: info.StoreID, SegmentBytes: 1 << 10})
		require.True(t, err == nil || isDamage(err), "%v", err)
		if err == nil {
			require.NoError(t, l.Close())
		}
	})
}

// fixChecksums lets a fuzzer get past the checksums: it corrects those of the header and
// of the first frames, wherever a magic number is.
func fixChecksums(b []byte) {
	if len(b) < segmentHeaderBytes {
		return
	}
	binary.LittleEndian.PutUint32(b[12:], logfile.HeaderChecksum(b[:segmentHeaderBytes]))
	h, err := decodeSegmentHeader("", b[:segmentHeaderBytes])
	if err != nil {
		return
	}
	for off := segmentHeaderBytes; off+frameHeaderBytes <= len(b); {
		n := binary.LittleEndian.Uint32(b[off+12:])
		end := off + int(frameBytes(int(n)))
		if binary.LittleEndian.Uint32(b[off:]) != frameMagic || end > len(b) {
			return
		}
		binary.LittleEndian.PutUint32(b[off+8:], logfile.Sum(b[off+frameHeaderBytes:end]))
		binary.LittleEndian.PutUint32(b[off+4:], headerChecksum(b[off:], h.id(), int64(off)))
		off = end
	}
}

func isDamage(err error) bool {
	return errors.Is(err, kv.ErrUnsupportedVersion) || errors.Is(err, kv.ErrCorrupt)
}

func TestVerifyAndDump(t *testing.T) {
	d := closedLog(t)
	disk := diskOf(t, d.files)
	steps := disk.Steps()
	var recs []rec
	keep := func(r Record) error {
		recs = append(recs, rec{r.Base, r.Units, string(r.Payload)})
		return nil
	}
	report, err := Verify(disk, testDir, testStore, keep)
	require.NoError(t, err)
	require.NoError(t, report.Problem)
	require.True(t, report.Clean)
	require.EqualValues(t, len(d.recs), report.Records)
	require.Equal(t, d.recs, recs)
	require.Len(t, report.Files, len(d.files))
	for _, f := range report.Files {
		require.True(t, f.Live)
	}

	recs = nil
	for _, num := range slices.Sorted(maps.Keys(d.files)) {
		info, err := Dump(disk, segmentName(testDir, num), func(f FrameInfo) error {
			for _, r := range f.Records {
				require.NoError(t, keep(r))
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, num, info.Num)
		require.EqualValues(t, testStore, info.StoreID)
		require.Zero(t, info.Tail)
	}
	require.Equal(t, d.recs, recs)
	require.Equal(t, steps, disk.Steps(), "Verify and Dump change nothing")

	spoilt := diskOf(t, d.spoil(1, func(b []byte) []byte {
		b[200] ^= 1
		return b
	}))
	report, err = Verify(spoilt, testDir, testStore, keep)
	require.NoError(t, err)
	var damage *kv.CorruptionError
	require.ErrorAs(t, report.Problem, &damage)
	require.Equal(t, segmentName(testDir, 1), damage.File)
	require.EqualValues(t, 128, damage.Offset)

	_, err = Verify(disk, testDir, testStore, func(Record) error { return os.ErrInvalid })
	require.ErrorIs(t, err, os.ErrInvalid)
	report, err = Verify(newDisk(t), testDir, testStore, keep)
	require.NoError(t, err)
	require.ErrorContains(t, report.Problem, "missing")
}

func TestEmpty(t *testing.T) {
	w := newWorld(t)
	w.record()
	w.open()
	w.disk.SetHook(nil)
	for _, img := range w.images {
		nums, err := listSegments(img.disk, testDir)
		require.NoError(t, err)
		for _, num := range nums {
			empty, err := Empty(img.disk, segmentName(testDir, num))
			require.NoError(t, err)
			require.True(t, empty, img.label)
		}
	}
	w.put(1, synced)
	name := segmentName(testDir, 1)
	empty, err := Empty(w.disk, name)
	require.NoError(t, err)
	require.False(t, empty)
	w.close()
	require.NoError(t, vfs.WriteAtomic(w.disk, name, []byte("something else")))
	empty, err = Empty(w.disk, name)
	require.NoError(t, err)
	require.False(t, empty)
}
