package repair

import (
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// wideRange makes a store with a range delete in a delta that covers far more keys than the data block
// that it is in, and that the log no longer has.
func wideRange(t *testing.T) *history {
	h := &history{t: t, disk: vfs.NewMem()}
	synctest.Test(t, func(t *testing.T) {
		in := *h
		in.t = t
		in.open()
		for i := range 1500 {
			in.put(i, "first"+strings.Repeat(" ", 1000))
		}
		require.NoError(t, in.e.CompactAll(t.Context()))
		in.halfway = filesOf(t, in.disk.KillImage(), damagedDir)
		_, err := in.e.BeginSnapshot(t.Context(), 0) // no merge is due because of what the range covers
		require.NoError(t, err)
		in.delRange(100, 1400)
		for i := 90; i < 1410; i += 2 {
			in.put(i, "second")
		}
		require.NoError(t, in.e.Flush(t.Context()))
		in.close()
		in.closed()
		*h = in
	})
	h.t, h.known = t, map[string][]written{}
	return h
}

// A range delete is lost if both its data block and the block of range tombstones are damaged. What it
// deleted may be back far behind the damaged block, and the report says so. A backup has it.
func TestALostRangeDeleteIsReported(t *testing.T) {
	t.Parallel()
	h := wideRange(t)
	merged := *h
	merged.disk = h.disk.KillImage()
	merged.open()
	require.NoError(t, merged.e.CompactAll(t.Context())) // drops the range delete, and what it deleted
	merged.close()
	merged.files = filesOf(t, merged.disk, damagedDir)
	for id := range partitions {
		dir := descriptor.PartitionDir(damagedDir, id)
		v, err := manifest.Load(h.disk, dir, uint32(id))
		require.NoError(t, err)
		damaged := 0
		for m := range v.Tables() {
			if m.Deletes == 0 {
				continue
			}
			damaged++
			name := path.Join(dir, manifest.TableName(m.Num))
			content := slices.Clone(h.files[name])
			ranges, known := h.rangeDeletes(name, content)
			require.Equal(t, 1, ranges)
			for at := len(content) - 1; known; at-- { // into the block of range tombstones, and no other
				flipped := slices.Clone(content)
				flipped[at] ^= 1
				if n, still := h.rangeDeletes(name, flipped); !still && n == ranges {
					content, known = flipped, false
				}
			}
			content[100] ^= 1 // into the first data block
			n, _ := h.rangeDeletes(name, content)
			require.Zero(t, n)
			for _, backup := range []string{"", "old", "new", "merged"} {
				disk := h.disk.KillImage()
				of := h
				if backup == "merged" {
					of = &merged
				}
				of.makeBackup(disk, backup)
				replace(t, disk, name, content)
				r := h.judge(disk, Options{Backup: backup})
				require.Equal(t, backup == "" || backup == "old", r.Lost(), "%q: %+v", backup, r.Losses)
			}
		}
		require.Equal(t, 1, damaged)
		if testsize.Reduced() {
			break
		}
	}
}

// Losses that share one range cover all of them, whatever the order of their keys, and they are bounded
// whatever the order of their files. A repair in place meets those of the base first, and then those of
// the deltas, in the same value file.
func TestLossesThatShareARangeAreCovered(t *testing.T) {
	testsize.OneGoroutine(t)
	t.Parallel()
	p := &part{repair: &repair{}}
	files := []string{"p-0000/000001.val", "p-0000/000002.val"}
	var all []Loss
	lose := func(i int) {
		key := []byte(keyOf(i))
		l := Loss{FirstKey: key, LastKey: key, FirstVersion: 1, LastVersion: 1, Entries: 1, File: files[i/2%2]}
		p.loseOne(&l)
		all = append(all, l)
	}
	for i := range maxExactLosses + 10 { // of the base
		lose(2 * i)
	}
	lose(2*maxExactLosses + 1) // of a delta
	lose(1)
	entries := uint64(0)
	for i := range p.report.Losses {
		entries += p.report.Losses[i].Entries
	}
	require.Equal(t, len(all), int(entries))
	require.Len(t, p.report.Losses, maxExactLosses+len(files))
	for _, l := range all {
		require.True(t, p.report.Covers(0, l.FirstKey, 1), "%s", l.FirstKey)
	}
}
