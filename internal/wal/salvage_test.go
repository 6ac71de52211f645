package wal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

func salvaged(t testing.TB, disk vfs.FS) ([]rec, Salvaged) {
	t.Helper()
	var recs []rec
	found, err := Salvage(disk, testDir, testStore, func(r Record) error {
		recs = append(recs, rec{r.Base, r.Units, string(r.Payload)})
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, len(recs), found.Records)
	return recs, found
}

// salvage checks that nothing is invented and that the numbers of whatever is missing are in
// a gap, and returns how many records are missing.
func (d damaged) salvage(t testing.TB, files map[uint64][]byte, what string) (missing int) {
	t.Helper()
	disk := diskOf(t, files)
	before := disk.Steps()
	recs, found := salvaged(t, disk)
	require.Equal(t, before, disk.Steps(), what)
	lost := uint64(0)
	for i, want := range d.recs {
		if len(recs) > 0 && recs[0] == want {
			recs = recs[1:]
			continue
		}
		missing++
		if i >= d.safe { // the end of a log that was killed may look like one that ended before
			continue
		}
		require.True(t, slices.ContainsFunc(found.Gaps, func(g Gap) bool { return g.From <= want.base && want.base <= g.To }),
			"%s: record %d is missing, and in no gap: %+v", what, want.base, found.Gaps)
	}
	require.Empty(t, recs, "%s: invented", what)
	for _, g := range found.Gaps {
		require.Equal(t, g.Open, g.Lost() && g.To == kv.MaxSeqNum, what)
		lost += g.Records
		if g.Open {
			lost = 1 << 20
		}
	}
	require.LessOrEqual(t, uint64(missing), lost+uint64(len(d.recs)-d.safe), "%s: %+v", what, found.Gaps)
	return missing
}

// A damaged byte costs the records of at most one frame.
func TestSalvageKeepsEveryFrameThatVerifies(t *testing.T) {
	testsize.OneGoroutine(t)
	for name, make := range map[string]func(testing.TB) damaged{"closed": closedLog, "killed": killedLog} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := make(t)
			require.Zero(t, d.salvage(t, d.files, "nothing"))
			for _, num := range slices.Sorted(maps.Keys(d.files)) {
				size := len(d.files[num])
				for off := 0; off < size; off += imageShare() {
					require.LessOrEqual(t, d.salvage(t, d.spoil(num, func(b []byte) []byte {
						b[off] ^= 1 << (off % 8)
						return b
					}), fmt.Sprintf("segment %d: byte %d flipped", num, off)), 1, "a frame holds one record")
					d.salvage(t, d.spoil(num, func(b []byte) []byte { return b[:off] }), fmt.Sprintf("segment %d cut to %d bytes", num, off))
				}
				files := maps.Clone(d.files)
				delete(files, num)
				d.salvage(t, files, fmt.Sprintf("segment %d removed", num))
				other := maps.Clone(d.files)
				other[num] = d.files[slices.Min(slices.Collect(maps.Keys(d.files)))]
				d.salvage(t, other, fmt.Sprintf("segment %d replaced", num))
			}
		})
	}
}

// A log that was written again is read with the same records and numbers, and gives no number
// out again.
func TestARebuiltLogHoldsTheSameRecords(t *testing.T) {
	d := closedLog(t)
	for _, count := range []int{0, 1, len(d.recs)} {
		disk := newDisk(t)
		require.NoError(t, disk.MkdirAll(testDir))
		b := NewRebuild(disk, testDir, testStore)
		for _, r := range d.recs[:count] {
			require.NoError(t, b.Add(Record{r.base, r.units, []byte(r.payload)}))
		}
		const next = 1 << 40
		require.NoError(t, b.Finish(next))
		report, err := Verify(disk, testDir, testStore, func(Record) error { return nil })
		require.NoError(t, err)
		require.NoError(t, report.Problem)
		require.EqualValues(t, count, report.Records)
		rebuilt := contents(t, disk)

		o := testOptions(disk)
		o.Fresh = false
		l, recs, r := mustOpen(t, o)
		require.Equal(t, slices.Clip(d.recs[:count]), append([]rec{}, recs...))
		require.EqualValues(t, next+recoveryGap, r.NextSeq)
		require.NoError(t, l.Close())

		for n := range rebuilt[1] { // no part of it can be lost unnoticed
			cut := diskOf(t, map[uint64][]byte{1: rebuilt[1][:n]})
			report, err := Verify(cut, testDir, testStore, func(Record) error { return nil })
			require.NoError(t, err)
			require.Error(t, report.Problem, "cut to %d bytes", n)
		}
	}
}

// A log larger than a frame is rebuilt of several.
func TestARebuiltLogOfSeveralFrames(t *testing.T) {
	disk := newDisk(t)
	require.NoError(t, disk.MkdirAll(testDir))
	b := NewRebuild(disk, testDir, testStore)
	payload := make([]byte, fullFrameBytes/3)
	for i := range 10 {
		require.NoError(t, b.Add(Record{kv.SeqNum(10 * (i + 1)), 3, payload}))
	}
	require.NoError(t, b.Finish(0))
	recs, found := salvaged(t, disk)
	require.Len(t, recs, 10)
	require.Empty(t, found.Gaps)
	require.EqualValues(t, 103, found.NextSeq)
}

func FuzzSalvage(f *testing.F) {
	d := closedLog(f)
	for _, num := range slices.Sorted(maps.Keys(d.files)) {
		f.Add(num, d.files[num])
	}
	f.Add(uint64(1), []byte{})
	f.Fuzz(func(t *testing.T, num uint64, b []byte) {
		if num == 0 || num > 1<<40 {
			return
		}
		disk := diskOf(t, map[uint64][]byte{num: b})
		last := kv.SeqNum(0)
		_, _ = Salvage(disk, testDir, testStore, func(r Record) error {
			require.Greater(t, r.Base, last)
			last = r.Last()
			return nil
		})
	})
}

// told returns what Damages tells of a log, by segment, and whether Verify refuses it.
func told(t testing.TB, files map[uint64][]byte) (places map[string]int, refused error) {
	t.Helper()
	disk := diskOf(t, files)
	report, err := Verify(disk, testDir, testStore, func(Record) error { return nil })
	require.NoError(t, err)
	places = map[string]int{}
	_, err = Damages(disk, testDir, testStore, func(Record) error { return nil }, func(name string, err error) {
		require.ErrorIs(t, err, kv.ErrCorrupt)
		places[name]++
	})
	require.NoError(t, err)
	return places, report.Problem
}

// Of whole segments nothing is told, and of damaged ones that one, also after other damage.
func TestEveryDamagedSegmentIsTold(t *testing.T) {
	testsize.OneGoroutine(t)
	d := closedLog(t)
	nums := slices.Sorted(maps.Keys(d.files))
	places, refused := told(t, d.files)
	require.NoError(t, refused)
	require.Empty(t, places)
	flip := func(b []byte, off int) []byte {
		b = slices.Clone(b)
		b[off] ^= 1
		return b
	}
	last := nums[len(nums)-1]
	for _, num := range nums {
		for off := 0; off < len(d.files[num]); off += imageShare() {
			what := fmt.Sprintf("segment %d at %d", num, off)
			files := maps.Clone(d.files)
			files[num] = flip(files[num], off)
			places, refused := told(t, files)
			if refused == nil || num == last && off < segmentHeaderBytes { // Verify then names the segment before
				require.LessOrEqual(t, len(places), 1, what)
				continue
			}
			require.Equal(t, map[string]int{segmentName(testDir, num): 1}, places, "%s: %v", what, refused)
			for _, other := range nums {
				if other == num {
					continue
				}
				both := maps.Clone(files)
				at := segmentHeaderBytes + (off+13)%(len(both[other])-segmentHeaderBytes)
				both[other] = flip(both[other], at)
				alone := maps.Clone(d.files)
				alone[other] = both[other]
				if _, refused := told(t, alone); refused == nil {
					continue // after the end of the log
				}
				places, _ := told(t, both)
				require.Equal(t, map[string]int{segmentName(testDir, num): 1, segmentName(testDir, other): 1}, places, "%s, and segment %d at %d", what, other, at)
			}
		}
		for n := segmentHeaderBytes; n < len(d.files[num]); n += imageShare() {
			files := maps.Clone(d.files)
			files[num] = files[num][:n]
			if places, refused := told(t, files); refused != nil {
				require.Contains(t, places, segmentName(testDir, num), "segment %d cut to %d: %v", num, n, refused)
			}
		}
	}
}

// A record that the caller does not know is damage of its frame; any other error ends the pass.
func TestRecordsThatAreRefusedAreTold(t *testing.T) {
	d := closedLog(t)
	disk := diskOf(t, d.files)
	places, even := 0, 0
	for _, r := range d.recs {
		if r.base%2 == 0 {
			even++
		}
	}
	found, err := Damages(disk, testDir, testStore, func(r Record) error {
		if r.Base%2 == 0 {
			return kv.Corruptf("record", -1, "even")
		}
		return nil
	}, func(name string, err error) {
		damage, ok := errors.AsType[*kv.CorruptionError](err)
		require.True(t, ok)
		require.Equal(t, name, damage.File)
		require.Positive(t, damage.Offset)
		require.Equal(t, "even", damage.Reason)
		places++
	})
	require.NoError(t, err)
	require.EqualValues(t, len(d.recs), found.Records)
	require.Equal(t, even, places)
	_, err = Damages(disk, testDir, testStore, func(Record) error { return fmt.Errorf("enough") }, func(string, error) {})
	require.ErrorContains(t, err, "enough")
}
