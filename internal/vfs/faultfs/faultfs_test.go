package faultfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everyOp does each operation once, on a file system that holds "old", and
// returns the error of each.
func everyOp(fsys vfs.FS) map[Kind]error {
	errs := map[Kind]error{}
	errs[MkdirAll] = fsys.MkdirAll("d")
	_, errs[List] = fsys.List("/")
	_, errs[Stat] = fsys.Stat("old")
	_, errs[Usage] = fsys.Usage("/")
	lock, err := fsys.Lock("LOCK")
	errs[Lock] = err
	if err == nil {
		errs[Lock] = lock.Close()
	}
	if lock, err = fsys.LockExisting("d", true); err == nil {
		err = lock.Close()
	}
	errs[LockExisting] = err
	f, err := fsys.OpenReadWrite("old")
	errs[OpenReadWrite] = err
	if err == nil {
		_, errs[Write] = f.WriteAt([]byte("12345"), 0)
		_, errs[Read] = f.ReadAt(make([]byte, 3), 0)
		errs[SetAccess] = f.SetAccess(access{})
		_, errs[Attributes] = f.Attributes()
		errs[SetAttributes] = f.SetAttributes(nil)
		errs[Truncate] = f.Truncate(3)
		errs[Reserve] = f.Reserve(5, 7)
		_, errs[Size] = f.Size()
		errs[Sync] = f.Sync()
		errs[Close] = f.Close()
	}
	if f, err = fsys.Open("old"); err == nil {
		err = f.Close()
	}
	errs[Open] = err
	if f, err = fsys.Create("new"); err == nil {
		err = f.Close()
	}
	errs[Create] = err
	errs[Rename] = fsys.Rename("old", "renamed")
	errs[Remove] = fsys.Remove("new")
	errs[SyncDir] = fsys.SyncDir("/")
	return errs
}

// access describes a file as far as SetAccess asks.
type access struct{ os.FileInfo }

func (access) Mode() os.FileMode { return 0o640 }

func newMem(t testing.TB) *vfs.Mem {
	m := vfs.NewMem()
	require.NoError(t, vfs.WriteAtomic(m, "old", []byte("hello")))
	return m
}

func TestEveryKindOfOperationCanFail(t *testing.T) {
	for kind := Create; kind <= Close; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			rule := FailAt(0, syscall.EIO, false, OnKind(kind))
			fsys := Wrap(newMem(t), rule)
			errs := everyOp(fsys)
			require.ErrorIs(t, errs[kind], syscall.EIO)
			var pathErr *os.PathError
			require.ErrorAs(t, errs[kind], &pathErr)
			assert.Equal(t, kind.String(), pathErr.Op)
			assert.True(t, rule.Fired())
			assert.True(t, fsys.Fired())
			delete(errs, kind)
			for other, err := range errs {
				require.NotErrorIs(t, err, syscall.EIO, "%v", other)
			}
		})
	}
}

func TestWithoutFaultsNothingChanges(t *testing.T) {
	for name, inj := range map[string]Injector{"nil": nil, "a rule out of reach": FailAt(1000, syscall.EIO, true)} {
		t.Run(name, func(t *testing.T) {
			fsys := Wrap(newMem(t), inj)
			for kind, err := range everyOp(fsys) {
				require.NoError(t, err, "%v", kind)
			}
			require.False(t, fsys.Fired())
			require.Equal(t, 24, fsys.Count(), "22 kinds, and the closing of two files more")
		})
	}
}

// TestSweepEnds is the loop of the package comment: operation 0, 1, 2, ...
// fails until a run is over before its fault, and WriteAtomic leaves the old
// content or the new each time.
func TestSweepEnds(t *testing.T) {
	faults := map[string]Fault{
		"EIO":           {Err: syscall.EIO},
		"ENOSPC":        {Err: syscall.ENOSPC},
		"EINTR":         {Err: syscall.EINTR},
		"EMFILE":        {Err: syscall.EMFILE},
		"short write":   {Err: syscall.ENOSPC, Short: 2},
		"dropped pages": {Err: syscall.EIO, DropDirty: true},
	}
	for name, fault := range faults {
		for _, sticky := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				i := 0
				for ; ; i++ {
					m := newMem(t)
					fsys := Wrap(m, At(i, sticky, fault))
					err := vfs.WriteAtomic(fsys, "old", []byte("replaced"))
					for _, policy := range []vfs.CrashPolicy{vfs.DropAll, vfs.KeepAll} {
						image := m.CrashImage(policy, nil)
						require.Contains(t, []string{"hello", "replaced"}, content(t, image, "old"), "operation %d", i)
						require.NoError(t, vfs.WriteAtomic(image, "old", []byte("again")))
					}
					if !fsys.Fired() {
						require.NoError(t, err)
						require.Equal(t, "replaced", content(t, m.CrashImage(vfs.DropAll, nil), "old"))
						break
					}
					require.ErrorIs(t, err, fault.Err, "operation %d", i)
				}
				require.Equal(t, 7, i, "remove, create, write, sync, close, rename, syncdir")
			})
		}
	}
}

func TestStickyAndOnce(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		rule := FailAt(1, syscall.EIO, sticky, OnKind(Stat))
		fsys := Wrap(newMem(t), rule)
		var failed []bool
		for range 4 {
			_, err := fsys.List("/") // not counted
			require.NoError(t, err)
			_, err = fsys.Stat("old")
			failed = append(failed, err != nil)
		}
		assert.Equal(t, []bool{false, true, sticky, sticky}, failed)
		assert.Equal(t, 4, rule.Count())
		assert.Equal(t, 8, fsys.Count())
	}
}

func TestPredicates(t *testing.T) {
	wal := OnName("*.wal")
	assert.True(t, wal(Op{Name: "data/wal/000001.wal"}))
	assert.False(t, wal(Op{Name: "data/wal/000001.sst"}))
	assert.True(t, OnName("CURRENT")(Op{Kind: Rename, Name: "d/CURRENT.tmp", NewName: "d/CURRENT"}))
	assert.False(t, OnName(".")(Op{Name: "a"}), "no new name is not the name \".\"")
	assert.Panics(t, func() { OnName("[") })

	syncs := OnKind(Sync, SyncDir)
	assert.True(t, syncs(Op{Kind: SyncDir}))
	assert.False(t, syncs(Op{Kind: Write}))

	rule := FailAt(0, syscall.EIO, true, wal, syncs)
	assert.Error(t, rule.Inject(Op{Kind: Sync, Name: "1.wal"}).Err)
	assert.NoError(t, rule.Inject(Op{Kind: Sync, Name: "1.sst"}).Err)
	assert.NoError(t, rule.Inject(Op{Kind: Write, Name: "1.wal"}).Err)
}

func TestInjectorSeesTheOperation(t *testing.T) {
	var ops []Op
	fsys := Wrap(newMem(t), InjectorFunc(func(op Op) Fault {
		ops = append(ops, op)
		return Fault{}
	}))
	f := open(t, fsys, "old")
	_, err := f.WriteAt([]byte("abc"), 7)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(4))
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.NoError(t, fsys.Rename("old", "new"))
	assert.Equal(t, []Op{
		{Kind: OpenReadWrite, Index: 0, Name: "old"},
		{Kind: Write, Index: 1, Name: "old", Off: 7, Len: 3},
		{Kind: Truncate, Index: 2, Name: "old", Off: 4},
		{Kind: Close, Index: 3, Name: "old"},
		{Kind: Rename, Index: 4, Name: "old", NewName: "new"},
	}, ops)
}

func TestKindNames(t *testing.T) {
	assert.Equal(t, "sync", Sync.String())
	assert.Equal(t, "kind(0)", Kind(0).String())
	assert.Equal(t, "kind(99)", Kind(99).String())
}

func TestShortWrite(t *testing.T) {
	for short, want := range map[int]string{0: "hello", 2: "abllo", 4: "abcdo", 5: "abcdo", 50: "abcdo"} {
		m := newMem(t)
		fsys := Wrap(m, At(0, false, Fault{Err: syscall.ENOSPC, Short: short}, OnKind(Write)))
		f := open(t, fsys, "old")
		n, err := f.WriteAt([]byte("abcde"), 0)
		require.ErrorIs(t, err, syscall.ENOSPC)
		assert.Equal(t, min(short, 4), n, "always short")
		assert.Equal(t, want, content(t, m, "old"))
		require.NoError(t, f.Close())
	}
}

// TestFailedSyncDropsDirtyPages is fsyncgate: the bytes read back fine, another
// handle syncs without an error, and the power cut shows that they are gone.
func TestFailedSyncDropsDirtyPages(t *testing.T) {
	m := newMem(t)
	fsys := Wrap(m, At(0, false, Fault{Err: syscall.EIO, DropDirty: true}, OnKind(Sync)))
	f := open(t, fsys, "old")
	_, err := f.WriteAt([]byte("JJ"), 0)
	require.NoError(t, err)
	first := f.Sync()
	require.ErrorIs(t, first, syscall.EIO)
	require.Equal(t, "JJllo", content(t, m, "old"))
	count := fsys.Count()
	require.Equal(t, first, f.Sync(), "a failed file stays failed")
	require.Equal(t, count, fsys.Count(), "and is not synced again")

	g := open(t, fsys, "old")
	require.NoError(t, g.Sync())
	require.False(t, m.SyncedBytes("old", 0, 2))
	require.Equal(t, "hello", content(t, m.CrashImage(vfs.KeepAll, nil), "old"))
	require.NoError(t, f.Close())
	require.NoError(t, g.Close())
}

// A failed sync of a directory forgets likewise what it should have made durable.
func TestFailedSyncDirDropsDirtyEntries(t *testing.T) {
	for _, fault := range []error{syscall.EIO, nil} {
		m := newMem(t)
		fsys := Wrap(m, At(0, false, Fault{Err: fault, DropDirty: true}, OnKind(SyncDir)))
		require.NoError(t, fsys.Rename("old", "new"))
		require.ErrorIs(t, fsys.SyncDir("/"), fault)
		require.Equal(t, "hello", content(t, m, "new"))
		require.NoError(t, fsys.SyncDir("/"), "the next one succeeds")
		require.Equal(t, "hello", content(t, m.CrashImage(vfs.KeepAll, nil), "old"), "and has made nothing durable")
	}
	fsys := Wrap(vfs.OS, At(0, false, Fault{DropDirty: true}))
	require.Panics(t, func() { _ = fsys.SyncDir(t.TempDir()) })
}

func TestFailedSyncWithoutDropLeavesPagesDirty(t *testing.T) {
	m := newMem(t)
	fsys := Wrap(m, FailAt(0, syscall.EIO, false, OnKind(Sync)))
	f := open(t, fsys, "old")
	_, err := f.WriteAt([]byte("JJ"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.ErrorIs(t, f.Sync(), syscall.EIO, "sticky, although the fault was for one sync")
	require.Equal(t, "hello", content(t, m.CrashImage(vfs.DropAll, nil), "old"))
	require.Equal(t, "JJllo", content(t, m.CrashImage(vfs.KeepAll, nil), "old"))
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Sync(), os.ErrClosed)
}

func TestLyingSync(t *testing.T) {
	m := newMem(t)
	fsys := Wrap(m, At(0, true, Fault{DropDirty: true}, OnKind(Sync)))
	f := open(t, fsys, "old")
	_, err := f.WriteAt([]byte("JJ"), 0)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.Equal(t, "hello", content(t, m.CrashImage(vfs.KeepAll, nil), "old"))
	require.NoError(t, f.Close())
}

func TestDropDirtyNeedsAMem(t *testing.T) {
	fsys := Wrap(vfs.OS, At(0, false, Fault{Err: syscall.EIO, DropDirty: true}, OnKind(Sync)))
	f, err := fsys.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	require.Panics(t, func() { assert.NoError(t, f.Sync()) })
	require.NoError(t, f.Close(), "the panic left nothing locked")
}

func TestFlipBit(t *testing.T) {
	m := newMem(t)
	fsys := Wrap(m, FlipBit(1, 5, OnName("old")))
	f := open(t, fsys, "old")
	buf := make([]byte, 3)
	for _, tc := range []struct {
		off   int64
		want  string
		fired bool
	}{{2, "llo", false}, {0, "hEl", true}, {1, "Ell", true}, {2, "llo", true}} {
		n, err := f.ReadAt(buf, tc.off)
		require.NoError(t, err)
		assert.Equal(t, tc.want, string(buf[:n]))
		assert.Equal(t, tc.fired, fsys.Fired())
	}
	assert.Equal(t, "hello", content(t, m, "old"), "the file itself is whole")
	require.NoError(t, f.Close())
}

func TestFlipBehindTheEnd(t *testing.T) {
	fsys := Wrap(newMem(t), FlipBit(6, 0))
	f := open(t, fsys, "old")
	buf := []byte("........")
	n, err := f.ReadAt(buf, 0)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "hello", string(buf[:n]))
	assert.Equal(t, "...", string(buf[n:]))
	require.NoError(t, f.Close())
}

func TestCloseClosesEvenIfItFails(t *testing.T) {
	m := newMem(t)
	fsys := Wrap(m, FailAt(0, syscall.EIO, true, OnKind(Close)))
	f := open(t, fsys, "old")
	require.ErrorIs(t, f.Close(), syscall.EIO)
	require.ErrorIs(t, f.Close(), syscall.EIO, "the second Close returns what the first did")
	_, err := f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, os.ErrClosed)
}

func TestSetInjector(t *testing.T) {
	fsys := Wrap(newMem(t), nil)
	f := open(t, fsys, "old")
	fsys.SetInjector(FailAt(0, syscall.EIO, true))
	_, err := f.Size()
	require.ErrorIs(t, err, syscall.EIO, "a file already open is hit too")
	fsys.SetInjector(nil)
	_, err = f.Size()
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// A Sync that hangs holds up a Close of the same file and nothing else.
func TestDelayedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var below []Kind // of what reaches the file system below, in order
		disk := Wrap(newMem(t), InjectorFunc(func(op Op) Fault {
			if op.Kind == Sync || op.Kind == Close {
				below = append(below, op.Kind)
			}
			return Fault{}
		}))
		fsys := Wrap(disk, At(0, false, Fault{Delay: func() { <-release }}, OnKind(Sync)))
		f := open(t, fsys, "old")
		var mu sync.Mutex
		var done []string
		finish := func(what string, err error) {
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			done = append(done, what)
		}
		finished := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(done, " ")
		}
		go func() { finish("sync", f.Sync()) }()
		require.Equal(t, "", finished())
		go func() { finish("close", f.Close()) }()
		require.Equal(t, "", finished())
		_, err := f.WriteAt([]byte("x"), 0)
		finish("write", err)
		require.Equal(t, "write", finished())
		close(release)
		require.ElementsMatch(t, []string{"write", "sync", "close"}, strings.Fields(finished()), "either goroutine may tell first")
		require.Equal(t, []Kind{Sync, Close}, below)
	})
}

func TestSyncAndCloseRace(t *testing.T) {
	fsys := Wrap(newMem(t), nil)
	for range 100 {
		f := open(t, fsys, "old")
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := f.Sync(); err != nil {
					assert.ErrorIs(t, err, os.ErrClosed)
				}
			})
		}
		wg.Go(func() { assert.NoError(t, f.Close()) })
		wg.Wait()
	}
}

func TestInnerErrorsPassThrough(t *testing.T) {
	fsys := Wrap(vfs.NewMem(), nil)
	_, err := fsys.Open("absent")
	require.ErrorIs(t, err, os.ErrNotExist)
	lock, err := fsys.Lock("LOCK")
	require.NoError(t, err)
	_, err = fsys.Lock("LOCK")
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, lock.Close())
}

func open(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	require.NoError(t, err)
	return f
}

func content(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	buf := make([]byte, size)
	n, err := f.ReadAt(buf, 0)
	require.True(t, err == nil || errors.Is(err, io.EOF))
	require.NoError(t, f.Close())
	return string(buf[:n])
}
