package wal

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// TestExtendedSegmentsHoldWhatWasAcknowledged writes a log of several segments, fast
// enough that they are extended by zeros, and finds all of it after kill -9 and after
// Close.
func TestExtendedSegmentsHoldWhatWasAcknowledged(t *testing.T) {
	mem := newDisk(t)
	osDir := t.TempDir()
	for _, c := range []struct {
		name   string
		fsys   vfs.FS
		dir    string
		killed func(o Options) Options // what a kill leaves of an open log
	}{
		{"Mem", mem, testDir, func(o Options) Options {
			o.FS = mem.KillImage()
			return o
		}},
		{"OS", vfs.OS, filepath.Join(osDir, "wal"), func(o Options) Options {
			dir := filepath.Join(osDir, "killed")
			require.NoError(t, os.CopyFS(dir, os.DirFS(o.Dir)))
			o.Dir = dir
			return o
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions(c.fsys)
			o.Dir, o.SegmentBytes, o.idleMark = c.dir, 2<<20, time.Hour
			l, _, _ := mustOpen(t, o)
			var want []rec
			filler := string(make([]byte, 500))
			extended := 0
			for i := range 16_000 {
				p := payload(i) + filler[:i%len(filler)]
				if i%1000 == 0 {
					p += string(make([]byte, 100<<10))
				}
				want = append(want, put(t, l, p, 1, kv.DurabilityBuffered))
				active := l.mu.active
				size, err := active.file.Size()
				if err != nil || size < active.off {
					t.Fatalf("record %d: written to %d, of %d bytes: %v", i, active.off, size, err)
				}
				if active.extendedTo > active.off {
					extended++
					if active.extendedTo > active.off+zeroWrite || size != max(active.extendedTo, active.zeroedTo) {
						t.Fatalf("record %d: written to %d, extended to %d, zeroed to %d, of %d bytes", i, active.off, active.extendedTo, active.zeroedTo, size)
					}
				}
			}
			require.Greater(t, extended, 10_000)
			require.Greater(t, l.mu.active.header.num, uint64(2), "segments")

			o.Fresh = false
			again, recs, recovery := mustOpen(t, c.killed(o))
			require.NoError(t, again.Close())
			require.Equal(t, want, recs)
			require.Zero(t, recovery.DroppedBytes)

			require.NoError(t, l.Close())
			l, recs, recovery = mustOpen(t, o)
			require.NoError(t, l.Close())
			require.Equal(t, want, recs)
			require.True(t, recovery.Clean)
		})
	}
}
