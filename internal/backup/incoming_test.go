package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace/pacetest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

var receivedAt = time.Date(2026, 11, 23, 1, 42, 0, 0, time.UTC)

func receive(fsys vfs.FS, s *store) (*Result, error) {
	s.sent = 0
	return Receive(context.Background(), s, fsys, "data", receivedAt, Options{})
}

// received checks that a data directory has a complete copy of a source.
func received(t testing.TB, fsys vfs.FS, s *store) {
	t.Helper()
	m, err := Incoming(fsys, "data")
	require.NoError(t, err)
	require.Equal(t, s.version, m.Version)
	require.Len(t, m.Files, len(s.names))
	for _, f := range m.Files {
		require.Equal(t, s.contents[f.Name], content(t, fsys, path.Join("data/incoming", f.Name)))
		require.Equal(t, sumOf([]byte(s.contents[f.Name])), uint64(f.Sum))
	}
}

func content(t testing.TB, fsys vfs.FS, name string) string {
	b, err := readFile(fsys, name, 1<<20)
	require.NoError(t, err)
	return string(b)
}

func put(t testing.TB, fsys vfs.FS, name, content string) {
	require.NoError(t, fsys.MkdirAll(path.Dir(name)))
	require.NoError(t, vfs.WriteAtomic(fsys, name, []byte(content)))
}

func dataDir(t testing.TB) *vfs.Mem {
	fsys := vfs.NewMem()
	require.NoError(t, fsys.MkdirAll("data"))
	require.NoError(t, fsys.SyncDir("/"))
	return fsys
}

func TestReceiveFetchesWhatIsMissing(t *testing.T) {
	fsys, s := dataDir(t), small()
	_, err := Incoming(fsys, "data")
	require.ErrorIs(t, err, fs.ErrNotExist)
	put(t, fsys, "data/p-0000/000002.sst", s.contents["p-0000/000002.sst"])
	put(t, fsys, "data/p-0000/000003.val", "others") // of the same length
	put(t, fsys, "data/incoming/CLOCK", "the clock")
	put(t, fsys, "data/incoming/p-0000/000003.val", "value") // cut short
	put(t, fsys, "data/incoming/p-0009/000001.sst", "of an attempt at another version")
	put(t, fsys, "data/incoming/STORE.tmp", "x")
	r, err := receive(fsys, s)
	require.NoError(t, err)
	received(t, fsys, s)
	require.Equal(t, 2, r.Reused)
	require.Equal(t, int64(len("the clock")+1500), r.ReusedBytes)
	require.Equal(t, s.sent, r.CopiedBytes)
	names, err := fsys.List("data/incoming")
	require.NoError(t, err)
	require.NotContains(t, names, "STORE.tmp")
	require.NotContains(t, names, "p-0009")
	require.Equal(t, "others", content(t, fsys, "data/p-0000/000003.val"), "the store does not change")

	// The next version.
	s.version++
	s.set("p-0000/000004.sst", "new")
	r, err = receive(fsys, s)
	require.NoError(t, err)
	received(t, fsys, s)
	require.Equal(t, int64(3), r.CopiedBytes)

	require.NoError(t, RemoveIncoming(fsys, "data"))
	require.NoError(t, RemoveIncoming(fsys, "data"), "a second time")
	_, err = fsys.Stat("data/incoming")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// What is here already is read at the rate too: to be compared, and to be copied.
func TestReceiveReadsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, size = 256 << 10, 1 << 20
		fsys, s := &pacetest.Meter{FS: dataDir(t)}, small()
		s.set("p-0000/000002.sst", strings.Repeat("t", size))
		s.set("p-0001/000002.sst", strings.Repeat("u", size))
		put(t, fsys, "data/p-0000/000002.sst", s.contents["p-0000/000002.sst"])
		put(t, fsys, "data/incoming/p-0001/000002.sst", s.contents["p-0001/000002.sst"])
		r, err := Receive(t.Context(), s, fsys, "data", receivedAt, Options{Rate: rate})
		require.NoError(t, err)
		require.Equal(t, int64(2*size), r.ReusedBytes)
		bytes, took := fsys.Total()
		require.GreaterOrEqual(t, bytes, int64(3*size))
		require.LessOrEqual(t, fsys.Most(time.Second), int64(rate*104/100+copyBytes), "%d bytes in %v", bytes, took)
		received(t, fsys, s)
	})
}

// writebacks notes how much of a file was written and not yet given to the kernel to write to the disk.
type writebacks struct {
	vfs.FS
	most int64
}

func (w *writebacks) Create(name string) (vfs.File, error) {
	f, err := w.FS.Create(name)
	return &writebackFile{File: f, of: w}, err
}

type writebackFile struct {
	vfs.File
	of             *writebacks
	written, given int64
}

func (f *writebackFile) WriteAt(p []byte, off int64) (int, error) {
	f.written = max(f.written, off+int64(len(p)))
	f.of.most = max(f.of.most, f.written-f.given)
	return f.File.WriteAt(p, off)
}

func (f *writebackFile) StartWriteback(off, n int64) {
	if off == f.given {
		f.given += n
	}
	f.File.StartWriteback(off, n)
}

// The sync at the end of a large file has little to write.
func TestReceiveWritesToTheDiskAsItGoes(t *testing.T) {
	fsys, s := &writebacks{FS: dataDir(t)}, small()
	s.set("p-0000/000002.sst", strings.Repeat("t", 8<<20))
	_, err := receive(fsys, s)
	require.NoError(t, err)
	require.LessOrEqual(t, fsys.most, int64(vfs.WritebackBytes+copyBytes))
	require.GreaterOrEqual(t, fsys.most, int64(vfs.WritebackBytes))
}

func TestReceiveThatFails(t *testing.T) {
	fsys, s := dataDir(t), small()
	s.fail = map[string]bool{"p-0000/000003.val": true}
	_, err := receive(fsys, s)
	require.ErrorIs(t, err, errFetch)
	_, err = Incoming(fsys, "data")
	require.ErrorIs(t, err, fs.ErrNotExist)
	s.fail, s.corrupt = nil, map[string]bool{"p-0000/000003.val": true}
	_, err = receive(fsys, s)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	s.corrupt = nil
	r, err := receive(fsys, s)
	require.NoError(t, err)
	require.Less(t, r.Copied, len(s.names), "what was received before is not fetched again")
	received(t, fsys, s)

	lies := newStore("STORE", "the store", "../escape", "x")
	_, err = receive(fsys, lies)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = receive(fsys, newStore("CLOCK", "the clock"))
	require.ErrorContains(t, err, "is no store")

	// A file that is lost, or cut, after all was received.
	received := dataDir(t)
	_, err = receive(received, s)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteAtomic(received, "data/incoming/CLOCK", []byte("the")))
	_, err = Incoming(received, "data")
	require.ErrorContains(t, err, "3 bytes, want 9")
	require.NoError(t, received.Remove("data/incoming/CLOCK"))
	_, err = Incoming(received, "data")
	require.ErrorContains(t, err, "the file is missing")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Receive(ctx, s, dataDir(t), "data", receivedAt, Options{})
	require.ErrorIs(t, err, context.Canceled)
}

// wrongSource says that a file is known which is not.
type wrongSource struct{ *store }

func (wrongSource) Fetch(context.Context, string, []uint64) (uint64, io.Reader, error) {
	return 1, nil, nil
}

func TestSourceThatSendsNothing(t *testing.T) {
	_, err := Receive(t.Context(), wrongSource{small()}, dataDir(t), "data", receivedAt, Options{})
	require.ErrorContains(t, err, "it was not sent")
}

// Power is cut, or the process killed, before every operation of two attempts, the second of
// which replaces what the first has completed. A manifest that is there is that of a complete
// copy; and another attempt completes it.
func TestReceiveAtEveryCrash(t *testing.T) {
	testsize.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(3, 4))
	disk, first, second := dataDir(t), small(), small()
	second.version++
	second.contents["p-0000/CURRENT"] = "c1"
	put(t, disk, "data/p-0000/000002.sst", first.contents["p-0000/000002.sst"])
	images, complete := 0, 0
	disk.SetHook(func(step vfs.Step) {
		check := func(image *vfs.Mem, what string) {
			images++
			switch m, err := Incoming(image, "data"); {
			case err == nil && m.Version == first.version:
				complete++
				received(t, image, first)
			case err == nil:
				received(t, image, second)
			default:
				require.ErrorIs(t, err, fs.ErrNotExist, what)
			}
			again := small()
			again.version, again.contents["p-0000/CURRENT"] = second.version, "c1"
			_, err := receive(image, again)
			require.NoError(t, err, what)
			received(t, image.CrashImage(vfs.DropAll, nil), again)
		}
		for _, policy := range vfs.CrashPolicies {
			check(disk.CrashImage(policy, rng), fmt.Sprintf("%v before step %d (%s %s)", policy, step.N, step.Kind, step.Name))
		}
		check(disk.KillImage(), fmt.Sprintf("kill before step %d (%s %s)", step.N, step.Kind, step.Name))
	})
	_, err := receive(disk, first)
	require.NoError(t, err)
	received(t, disk.CrashImage(vfs.DropAll, nil), first)
	_, err = receive(disk, second)
	require.NoError(t, err)
	disk.SetHook(nil)
	received(t, disk.CrashImage(vfs.DropAll, nil), second)
	require.Greater(t, images, 100)
	require.NotZero(t, complete)
}

// Every operation fails in turn; nothing incomplete counts as complete, and the next attempt works.
func TestReceiveAtEveryFault(t *testing.T) {
	for i := 0; ; i++ {
		disk, s := dataDir(t), small()
		put(t, disk, "data/incoming/p-0000/000001.sst", "of an attempt at another version")
		put(t, disk, "data/incoming/COMPLETE", "x")
		fsys := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, false))
		_, err := receive(fsys, s)
		if !fsys.Fired() {
			require.NoError(t, err)
			require.Greater(t, i, 30)
			return
		}
		if err == nil {
			received(t, disk, s)
			continue // a file that could not be read was fetched
		}
		if _, err := Incoming(disk, "data"); !errors.Is(err, fs.ErrNotExist) && !strings.Contains(fmt.Sprint(err), "COMPLETE") {
			require.NoError(t, err)
			received(t, disk, s)
		}
		_, err = receive(disk, s)
		require.NoError(t, err, "operation %d", i)
		received(t, disk, s)
	}
}
