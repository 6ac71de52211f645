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

// TestWindowsHoldWhatWasAcknowledged writes a log of several segments on the file system
// of the operating system, fast enough for windows, and finds all of it in a copy that
// was taken while the log was open, as after kill -9, and again after it was closed.
func TestWindowsHoldWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	o := testOptions(vfs.OS)
	o.Dir, o.SegmentBytes, o.IdleMark = filepath.Join(dir, "wal"), 2<<20, time.Hour
	l, _, _ := mustOpen(t, o)
	var want []rec
	filler := string(make([]byte, 500))
	for i := range 16_000 {
		p := payload(i) + filler[:i%len(filler)]
		if i%1000 == 0 {
			p += string(make([]byte, 100<<10)) // this one needs no window
		}
		want = append(want, put(t, l, p, 1, kv.DurabilityBuffered))
	}
	active := l.mu.active
	require.Greater(t, active.header.num, uint64(2), "segments")
	size, err := active.file.Size()
	require.NoError(t, err)
	require.Greater(t, size, active.off, "a window")

	killed := o
	killed.Dir, killed.Fresh = filepath.Join(dir, "killed"), false
	require.NoError(t, os.CopyFS(killed.Dir, os.DirFS(o.Dir)))
	again, recs, recovery := mustOpen(t, killed)
	require.NoError(t, again.Close())
	require.Equal(t, want, recs)
	require.Zero(t, recovery.DroppedBytes)

	require.NoError(t, l.Close())
	o.Fresh = false
	l, recs, recovery = mustOpen(t, o)
	require.NoError(t, l.Close())
	require.Equal(t, want, recs)
	require.True(t, recovery.Clean)
}
