package repair

import (
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// salvaged says what is left of a table.
func (h *history) salvaged(name string, content []byte) sstable.Salvaged {
	return h.entriesOf(name, content, func(*kv.Entry) {})
}

// entriesOf passes on the entries that verify of a table.
func (h *history) entriesOf(name string, content []byte, visit func(*kv.Entry)) sstable.Salvaged {
	disk := vfs.NewMem()
	replace(h.t, disk, "table", content)
	f, err := disk.Open("table")
	require.NoError(h.t, err)
	id, _ := descriptor.ParsePartition(path.Base(path.Dir(name)))
	_, num := manifest.ParseName(path.Base(name))
	found, err := sstable.Salvage(h.t.Context(), f, kv.FileID{Partition: uint32(id), Num: num}, func(e *kv.Entry) error {
		visit(e)
		return nil
	})
	require.NoError(h.t, err)
	require.NoError(h.t, f.Close())
	return found
}

// withoutFilter damages the filter of a table and nothing else.
func (h *history) withoutFilter(name string) []byte {
	for at := len(h.files[name]) - 1; at >= 0; at-- {
		content := slices.Clone(h.files[name])
		content[at] ^= 1
		if found := h.salvaged(name, content); !found.HasFilter() && len(found.Gaps) == 0 {
			return content
		}
	}
	require.Fail(h.t, "no place is in the filter alone", name)
	return nil
}

// A range delete in a damaged table hides keys that an older table has, and that a backup from before
// it shows. Without the filter of the damaged table each of them may have been written in it. It was
// deleted since the backup, so it does not come back. It would have been in two tables with the same
// number, which no merge accepts.
func TestABackupDoesNotDoubleWhatWasDeletedSince(t *testing.T) {
	t.Parallel()
	h := &history{t: t, disk: vfs.NewMem()}
	synctest.Test(t, func(t *testing.T) { // at rest, a merge would be due
		in := *h
		in.t = t
		in.open()
		for i := range 900 {
			in.put(i, "first"+strings.Repeat(" ", 40))
		}
		require.NoError(t, in.e.CompactAll(t.Context()))
		in.halfway = filesOf(t, in.disk.KillImage(), damagedDir)
		in.delRange(300, 320)
		for i := 100; i < 500; i += 4 {
			in.put(i, "second"+strings.Repeat(" ", 40))
		}
		in.delRange(340, 350)
		require.NoError(t, in.e.Flush(t.Context()))
		in.close()
		in.closed()
		*h = in
	})
	h.t = t
	restored := uint64(0)
	for id := range partitions {
		dir := descriptor.PartitionDir(damagedDir, id)
		v, err := manifest.Load(h.disk, dir, uint32(id))
		require.NoError(t, err)
		require.Len(t, v.Deltas, 1)
		name := path.Join(dir, manifest.TableName(v.Deltas[0][0].Num))
		blind := h.withoutFilter(name)
		gaps := 0
		for at := 70; at < len(blind) && gaps < 4; at += 400 {
			content := slices.Clone(blind)
			content[at] ^= 1
			if len(h.salvaged(name, content).Gaps) == 0 {
				break
			}
			gaps++
			r, _ := h.inPlace("old", func(disk *vfs.Mem) {
				h.makeBackup(disk, "old")
				replace(t, disk, name, content)
			})
			restored += r.Filled
		}
		require.Positive(t, gaps)
		if testsize.Reduced() {
			break
		}
	}
	require.Zero(t, restored, "the store has every version that the backup has")
}

// A table of the base may end at a higher number than a table of the oldest delta begins, so what the
// backup has of a lost key of the base may be an entry of that delta. It is found there, also if the
// delta is damaged.
func TestTheOldestDeltaBesideTheBase(t *testing.T) {
	t.Parallel()
	h := newLayered(t)
	for _, damaged := range []bool{false, true} {
		checked := 0
		for id := range partitions {
			dir := descriptor.PartitionDir(damagedDir, id)
			v, err := manifest.Load(h.disk, dir, uint32(id))
			require.NoError(t, err)
			base, delta := path.Join(dir, manifest.TableName(v.Base[0].Num)), path.Join(dir, manifest.TableName(v.Deltas[1][0].Num))
			disk, left := h.disk.KillImage(), h.files[delta]
			flipped := slices.Clone(h.files[base])
			flipped[len(flipped)/3] ^= 1
			replace(t, disk, base, flipped)
			if damaged {
				left = slices.Clone(left)
				left[len(left)/3] ^= 1
				replace(t, disk, delta, left)
			}
			want := map[string]kv.SeqNum{}
			h.entriesOf(delta, left, func(e *kv.Entry) {
				if e.Kind != kv.KindRangeDelete {
					want[string(e.Key)] = max(want[string(e.Key)], e.Seq)
				}
			})
			s, err := PlanInPlace(t.Context(), disk, damagedDir, InPlaceOptions{Scratch: scratchDir, PlanOnly: true})
			require.NoError(t, err)
			require.Len(t, s.places, 1)
			b := s.places[0].planned
			a := b.around(b.rewrites[v.Base[0].Num], nil, nil)
			for _, key := range h.keys() {
				newest, err := a.newest([]byte(key))
				require.NoError(t, err)
				require.Equal(t, want[key], newest, key)
			}
			checked += len(want)
			require.NoError(t, a.close())
			require.NoError(t, s.Close())
		}
		require.Positive(t, checked)
	}
}
