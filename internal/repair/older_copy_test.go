package repair

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
)

// newOlderCopy makes a store that was flushed or, with compact, merged after its files were copied to
// old. The log has none of that.
func newOlderCopy(t testing.TB, compact bool) (h *history, old map[string][]byte) {
	h = &history{t: t, disk: vfs.NewMem()}
	h.open()
	for i := range 300 {
		h.put(i, "first")
	}
	require.NoError(t, h.e.CompactAll(t.Context()))
	h.close()
	old = filesOf(t, h.disk, damagedDir)
	h.open()
	for i := 100; i < 150; i++ {
		h.put(i, "second")
	}
	h.delRange(200, 220)
	require.NoError(t, h.e.Flush(t.Context()))
	if compact {
		require.NoError(t, h.e.CompactAll(t.Context()))
	}
	h.close()
	h.open() // the log goes on in another segment
	require.NoError(t, h.e.RewriteLog(t.Context()))
	h.close()
	h.closed()
	return h, old
}

// An older copy of CURRENT and its manifest does not hide what was written since: that it is older is
// proved by the tables that it does not name, also if all that it names are there.
func TestAnOlderCopyOfTheManifest(t *testing.T) {
	t.Parallel()
	for name, compact := range map[string]bool{"flushed since": false, "merged since": true} {
		h, old := newOlderCopy(t, compact)
		for what, keep := range map[string]bool{"the newer one is lost": false, "the newer one is there": true} {
			t.Run(name+", "+what, func(t *testing.T) {
				one := *h
				one.t = t
				damage := func(disk *vfs.Mem) {
					for file := range h.files {
						if strings.HasPrefix(path.Base(file), "MANIFEST-") && !keep {
							replace(t, disk, file, nil)
						}
					}
					for file, content := range old {
						if base := path.Base(file); base == manifest.CurrentName || strings.HasPrefix(base, "MANIFEST-") {
							replace(t, disk, file, content)
						}
					}
				}
				missing := 0
				one.missing = &missing
				r := one.repaired(damage)
				require.Zero(t, missing, "all tables count")
				require.Equal(t, !keep, r.Lost(), "the newest manifest counts if it is there")

				disk := h.disk.KillImage()
				damage(disk)
				before := filesOf(t, disk, damagedDir)
				_, err := repairInPlace(t, disk, "", true)
				require.ErrorIs(t, err, kv.ErrCorrupt)
				require.ErrorContains(t, err, "it is an older copy")
				require.Equal(t, withoutLock(before), withoutLock(filesOf(t, disk, damagedDir)))
			})
		}
	}
}
