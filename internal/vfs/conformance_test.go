package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spaceOf returns the bytes that a file takes of its disk.
func spaceOf(t *testing.T, f File) int64 {
	t.Helper()
	info, err := f.Stat()
	require.NoError(t, err)
	if node, ok := info.Sys().(*fileNode); ok {
		return node.space()
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// withMode is a description with another mode.
type withMode struct {
	os.FileInfo
	mode os.FileMode
}

func (m withMode) Mode() os.FileMode { return m.mode }

// behaviours are what every FS must do. Each gets an empty directory.
var behaviours = []struct {
	name string
	test func(t *testing.T, fsys FS, dir string)
}{
	{"a new file is empty, writable, readable and found by its name", func(t *testing.T, fsys FS, dir string) {
		f, err := fsys.Create(dir + "/a")
		require.NoError(t, err)
		defer closeFile(t, f)
		require.Equal(t, dir+"/a", f.Name())
		require.Equal(t, "", readAll(t, f))
		write(t, f, "hello", 0)
		require.Equal(t, "hello", readAll(t, f))
		require.Equal(t, "hello", read(t, fsys, dir+"/a"))

		info, err := fsys.Stat(dir + "/a")
		require.NoError(t, err)
		assert.Equal(t, "a", info.Name())
		assert.Equal(t, int64(5), info.Size())
		assert.Equal(t, os.FileMode(0o600), info.Mode())
		assert.False(t, info.IsDir())
	}},
	{"SetAccess gives the permissions of another file, and changes nothing else", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "abc")
		for _, mode := range []os.FileMode{0o640, 0o400} {
			info, err := f.Stat()
			require.NoError(t, err)
			require.NoError(t, f.SetAccess(withMode{info, os.ModeSetuid | mode}))
			info, err = fsys.Stat(dir + "/a")
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode())
		}
		require.Equal(t, "abc", readAll(t, f))
		info, err := f.Stat()
		require.NoError(t, err)
		closeFile(t, f)
		require.Error(t, f.SetAccess(info), "closed")
	}},
	{"reserved space changes no byte, and is written and truncated like other space", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "abc")
		require.NoError(t, f.Reserve(3, 1<<20))
		size, err := f.Size()
		require.NoError(t, err)
		require.GreaterOrEqual(t, size, int64(3), "zeros may be there, no less than before")
		write(t, f, "d", 3)
		buf := make([]byte, 4)
		_, err = f.ReadAt(buf, 0)
		require.NoError(t, err)
		require.Equal(t, "abcd", string(buf))
		require.NoError(t, f.Truncate(2))
		require.Equal(t, "ab", readAll(t, f))
		require.NoError(t, f.Reserve(2, 10))
		require.Error(t, f.Reserve(-1, 10))
		require.NoError(t, f.Close())
		require.ErrorIs(t, f.Reserve(0, 1), os.ErrClosed)
		closeFile(t, f)
		f, err = fsys.Open(dir + "/a")
		require.NoError(t, err)
		require.Error(t, f.Reserve(2, 10), "opened for reading")
		closeFile(t, f)
	}},
	{"Truncate gives back what is reserved beyond the new end, also of a file that grows", func(t *testing.T, fsys FS, dir string) {
		for _, size := range []int64{3, 10, 64 << 10} {
			f := create(t, fsys, fmt.Sprintf("%s/%d", dir, size), "abcdefghij")
			require.NoError(t, f.Reserve(10, 16<<20))
			if spaceOf(t, f) < 16<<20 {
				t.Skip("SKIPPED: this file system reserves no space")
			}
			require.NoError(t, f.Truncate(size))
			require.LessOrEqual(t, spaceOf(t, f), int64(128<<10))
			closeFile(t, f)
		}
	}},
	{"Create refuses an existing name and leaves it alone", func(t *testing.T, fsys FS, dir string) {
		closeFile(t, create(t, fsys, dir+"/a", "old"))
		_, err := fsys.Create(dir + "/a")
		require.ErrorIs(t, err, os.ErrExist)
		require.Equal(t, "old", read(t, fsys, dir+"/a"))
		_, err = fsys.Create(dir)
		require.ErrorIs(t, err, os.ErrExist)
	}},
	{"what is missing is ErrNotExist", func(t *testing.T, fsys FS, dir string) {
		_, err := fsys.Open(dir + "/a")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.OpenReadWrite(dir + "/a")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.Create(dir + "/no/a")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.Stat(dir + "/a")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.List(dir + "/a")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.Lock(dir + "/no/LOCK")
		require.ErrorIs(t, err, os.ErrNotExist)
		_, err = fsys.Usage(dir + "/no")
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorIs(t, fsys.SyncDir(dir+"/no"), os.ErrNotExist)
		require.ErrorIs(t, fsys.Remove(dir+"/a"), os.ErrNotExist)
		require.ErrorIs(t, fsys.Rename(dir+"/a", dir+"/b"), os.ErrNotExist)
		closeFile(t, create(t, fsys, dir+"/a", "x"))
		require.ErrorIs(t, fsys.Rename(dir+"/a", dir+"/no/a"), os.ErrNotExist)
		require.Equal(t, "x", read(t, fsys, dir+"/a"))
	}},
	{"Open reads only", func(t *testing.T, fsys FS, dir string) {
		closeFile(t, create(t, fsys, dir+"/a", "old"))
		f, err := fsys.Open(dir + "/a")
		require.NoError(t, err)
		defer closeFile(t, f)
		_, err = f.WriteAt([]byte("x"), 0)
		require.Error(t, err)
		require.Error(t, f.Truncate(0))
		require.Equal(t, "old", readAll(t, f))
	}},
	{"OpenReadWrite keeps the content", func(t *testing.T, fsys FS, dir string) {
		closeFile(t, create(t, fsys, dir+"/a", "hello"))
		f, err := fsys.OpenReadWrite(dir + "/a")
		require.NoError(t, err)
		defer closeFile(t, f)
		write(t, f, "J", 0)
		require.Equal(t, "Jello", readAll(t, f))
	}},
	{"a directory is not a file, a file is not a directory", func(t *testing.T, fsys FS, dir string) {
		closeFile(t, create(t, fsys, dir+"/a", "x"))
		require.NoError(t, fsys.MkdirAll(dir+"/d"))
		_, err := fsys.Open(dir + "/d")
		require.ErrorIs(t, err, syscall.EISDIR)
		_, err = fsys.OpenReadWrite(dir + "/d")
		require.ErrorIs(t, err, syscall.EISDIR)
		_, err = fsys.Lock(dir + "/d")
		require.ErrorIs(t, err, syscall.EISDIR)
		_, err = fsys.Create(dir + "/a/b")
		require.ErrorIs(t, err, syscall.ENOTDIR)
		_, err = fsys.List(dir + "/a")
		require.ErrorIs(t, err, syscall.ENOTDIR)
		require.ErrorIs(t, fsys.SyncDir(dir+"/a"), syscall.ENOTDIR)
		require.ErrorIs(t, fsys.MkdirAll(dir+"/a/b"), syscall.ENOTDIR)
	}},
	{"reads end with EOF", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		defer closeFile(t, f)
		buf := make([]byte, 4)
		n, err := f.ReadAt(buf, 1)
		require.NoError(t, err)
		require.Equal(t, "ello", string(buf[:n]))
		n, err = f.ReadAt(buf, 3)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "lo", string(buf[:n]))
		n, err = f.ReadAt(buf, 5)
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, n)
		n, err = f.ReadAt(buf, 500)
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, n)
		n, err = f.ReadAt(nil, 0)
		require.NoError(t, err)
		require.Zero(t, n)
	}},
	{"negative offsets are errors", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		defer closeFile(t, f)
		_, err := f.ReadAt(make([]byte, 1), -1)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
		_, err = f.WriteAt([]byte("x"), -1)
		require.Error(t, err)
		require.Error(t, f.Truncate(-1))
		require.Equal(t, "hello", readAll(t, f))
	}},
	{"a gap reads as zeros", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "ab")
		defer closeFile(t, f)
		write(t, f, "cd", 5000)
		s := readAll(t, f)
		require.Len(t, s, 5002)
		require.Equal(t, "ab\x00", s[:3])
		require.Equal(t, "\x00cd", s[4999:])
	}},
	{"an empty write does not grow the file", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "ab")
		defer closeFile(t, f)
		write(t, f, "", 100)
		require.Equal(t, "ab", readAll(t, f))
	}},
	{"the writer may reuse its buffer", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "")
		defer closeFile(t, f)
		buf := []byte("one")
		_, err := f.WriteAt(buf, 0)
		require.NoError(t, err)
		copy(buf, "two")
		require.Equal(t, "one", readAll(t, f))
		require.NoError(t, f.Sync())
		require.Equal(t, "one", readAll(t, f))
	}},
	{"Truncate cuts, and grows with zeros", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		defer closeFile(t, f)
		require.NoError(t, f.Truncate(2))
		require.Equal(t, "he", readAll(t, f))
		require.NoError(t, f.Truncate(4))
		require.Equal(t, "he\x00\x00", readAll(t, f))
	}},
	{"handles of one file see each other's writes", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		defer closeFile(t, f)
		g, err := fsys.Open(dir + "/a")
		require.NoError(t, err)
		defer closeFile(t, g)
		write(t, f, "J", 0)
		require.Equal(t, "Jello", readAll(t, g))
	}},
	{"Rename moves, replaces and leaves open handles alone", func(t *testing.T, fsys FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/d"))
		f := create(t, fsys, dir+"/a", "new")
		defer closeFile(t, f)
		g := create(t, fsys, dir+"/d/b", "old")
		defer closeFile(t, g)
		require.NoError(t, fsys.Rename(dir+"/a", dir+"/d/b"))
		require.Equal(t, absent, read(t, fsys, dir+"/a"))
		require.Equal(t, "new", read(t, fsys, dir+"/d/b"))
		require.Equal(t, "old", readAll(t, g))
		write(t, f, "now", 0)
		require.Equal(t, "now", read(t, fsys, dir+"/d/b"))
		require.NoError(t, fsys.Rename(dir+"/d/b", dir+"/d/b"))
		require.Equal(t, "now", read(t, fsys, dir+"/d/b"))
	}},
	{"Rename refuses directories", func(t *testing.T, fsys FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/d"))
		closeFile(t, create(t, fsys, dir+"/a", "x"))
		require.ErrorIs(t, fsys.Rename(dir+"/d", dir+"/e"), syscall.EISDIR)
		require.Error(t, fsys.Rename(dir+"/a", dir+"/d"))
		requireList(t, fsys, dir, "a", "d")
	}},
	{"Remove takes files and empty directories, open handles live on", func(t *testing.T, fsys FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/d"))
		f := create(t, fsys, dir+"/d/a", "x")
		defer closeFile(t, f)
		require.ErrorIs(t, fsys.Remove(dir+"/d"), syscall.ENOTEMPTY)
		require.NoError(t, fsys.Remove(dir+"/d/a"))
		require.Equal(t, absent, read(t, fsys, dir+"/d/a"))
		require.Equal(t, "x", readAll(t, f))
		write(t, f, "y", 0)
		require.NoError(t, f.Sync())
		require.NoError(t, fsys.Remove(dir+"/d"))
		requireList(t, fsys, dir)
	}},
	{"MkdirAll makes parents and may be repeated", func(t *testing.T, fsys FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/d/e"))
		require.NoError(t, fsys.MkdirAll(dir+"/d/e"))
		require.NoError(t, fsys.SyncDir(dir+"/d"))
		info, err := fsys.Stat(dir + "/d/e")
		require.NoError(t, err)
		require.True(t, info.IsDir())
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}},
	{"List is sorted", func(t *testing.T, fsys FS, dir string) {
		requireList(t, fsys, dir)
		for _, name := range []string{"b", "a.tmp", "c", "a"} {
			closeFile(t, create(t, fsys, dir+"/"+name, ""))
		}
		require.NoError(t, fsys.MkdirAll(dir+"/bb/x"))
		requireList(t, fsys, dir, "a", "a.tmp", "b", "bb", "c")
	}},
	{"Sync and SyncDir keep everything as it is", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		defer closeFile(t, f)
		f.StartWriteback(0, 5)
		require.NoError(t, f.Sync())
		require.NoError(t, fsys.SyncDir(dir))
		require.Equal(t, "hello", readAll(t, f))
	}},
	{"after Close everything is ErrClosed, but Close", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "hello")
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		_, err := f.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, os.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		require.ErrorIs(t, err, os.ErrClosed)
		_, err = f.Size()
		require.ErrorIs(t, err, os.ErrClosed)
		require.ErrorIs(t, f.Truncate(0), os.ErrClosed)
		require.ErrorIs(t, f.Sync(), os.ErrClosed)
		f.StartWriteback(0, 1)
		require.Equal(t, "hello", read(t, fsys, dir+"/a"))
	}},
	{"a lock is held by one, and names its holder", func(t *testing.T, fsys FS, dir string) {
		l, err := fsys.Lock(dir + "/LOCK")
		require.NoError(t, err)
		_, err = fsys.Lock(dir + "/LOCK")
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
		require.ErrorContains(t, err, "LOCK")
		other, err := fsys.Lock(dir + "/LOCK2")
		require.NoError(t, err)
		require.NoError(t, other.Close())
		require.NoError(t, l.Close())
		again, err := fsys.Lock(dir + "/LOCK")
		require.NoError(t, err)
		require.NoError(t, l.Close(), "a second Close lets go of nothing")
		_, err = fsys.Lock(dir + "/LOCK")
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, again.Close())
		requireList(t, fsys, dir, "LOCK", "LOCK2")
	}},
	{"a lock on what is there makes no file, and follows what it locks", func(t *testing.T, fsys FS, dir string) {
		_, err := fsys.LockExisting(dir+"/none", true)
		require.ErrorIs(t, err, fs.ErrNotExist)
		create(t, fsys, dir+"/file", "")
		for _, name := range []string{dir, dir + "/file"} {
			exclusive, err := fsys.LockExisting(name, false)
			require.NoError(t, err)
			for _, shared := range []bool{true, false} {
				_, err = fsys.LockExisting(name, shared)
				require.ErrorIs(t, err, ErrLocked)
			}
			require.NoError(t, exclusive.Close())
			require.NoError(t, exclusive.Close(), "a second Close lets go of nothing")
			one, err := fsys.LockExisting(name, true)
			require.NoError(t, err)
			two, err := fsys.LockExisting(name, true)
			require.NoError(t, err)
			_, err = fsys.LockExisting(name, false)
			require.ErrorIs(t, err, ErrLocked)
			require.NoError(t, one.Close())
			_, err = fsys.LockExisting(name, false)
			require.ErrorIs(t, err, ErrLocked, "the other is left")
			require.NoError(t, two.Close())
		}
		lock, err := fsys.LockExisting(dir+"/file", false)
		require.NoError(t, err)
		require.NoError(t, fsys.Rename(dir+"/file", dir+"/moved"))
		create(t, fsys, dir+"/file", "")
		other, err := fsys.LockExisting(dir+"/file", false)
		require.NoError(t, err, "another file of the same name")
		_, err = fsys.LockExisting(dir+"/moved", false)
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, errors.Join(lock.Close(), other.Close()))
		requireList(t, fsys, dir, "file", "moved")
		l, err := fsys.Lock(dir + "/LOCK")
		require.NoError(t, err)
		_, err = fsys.LockExisting(dir+"/LOCK", true)
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
		require.NoError(t, l.Close())
	}},
	{"SameFile tells a file from another of its name", func(t *testing.T, fsys FS, dir string) {
		create(t, fsys, dir+"/a", "")
		create(t, fsys, dir+"/b", "")
		f, err := fsys.Open(dir + "/a")
		require.NoError(t, err)
		opened, err := f.Stat()
		require.NoError(t, err)
		same := func(name string) bool {
			info, err := fsys.Stat(name)
			require.NoError(t, err)
			return SameFile(opened, info)
		}
		require.True(t, same(dir+"/a"))
		require.False(t, same(dir+"/b"))
		require.False(t, same(dir))
		require.NoError(t, fsys.Rename(dir+"/a", dir+"/c"))
		require.True(t, same(dir+"/c"), "it follows the name")
		require.NoError(t, fsys.Rename(dir+"/b", dir+"/a"))
		require.False(t, same(dir+"/a"))
		require.NoError(t, fsys.Remove(dir+"/c"))
		gone, err := f.Stat()
		require.NoError(t, err)
		require.True(t, SameFile(opened, gone))
		require.NoError(t, f.Close())
		_, err = f.Stat()
		require.ErrorIs(t, err, os.ErrClosed)
		one, err := fsys.Stat(dir)
		require.NoError(t, err)
		two, err := fsys.Stat(dir)
		require.NoError(t, err)
		require.True(t, SameFile(one, two))
	}},
	{"Usage has less free than total", func(t *testing.T, fsys FS, dir string) {
		u, err := fsys.Usage(dir)
		require.NoError(t, err)
		require.Positive(t, u.Total)
		require.LessOrEqual(t, u.Free, u.Total)
	}},
	{"a Sync that races with Close succeeds or finds the file closed", func(t *testing.T, fsys FS, dir string) {
		for i := range 50 {
			f := create(t, fsys, fmt.Sprintf("%s/%d", dir, i), "x")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if err := f.Sync(); err != nil {
						assert.ErrorIs(t, err, os.ErrClosed)
					}
				})
			}
			wg.Go(func() { assert.NoError(t, f.Close()) })
			wg.Go(func() { assert.NoError(t, f.Close()) })
			wg.Wait()
		}
	}},
	{"reads and writes of one file may overlap", func(t *testing.T, fsys FS, dir string) {
		f := create(t, fsys, dir+"/a", "")
		defer closeFile(t, f)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				buf := make([]byte, 8)
				for i := range 100 {
					off := int64(i*4+w) * 8
					copy(buf, fmt.Sprintf("%d-%05d ", w, i))
					_, err := f.WriteAt(buf, off)
					assert.NoError(t, err)
					got := make([]byte, 8)
					_, err = f.ReadAt(got, off)
					assert.NoError(t, err)
					assert.Equal(t, buf, got)
				}
			})
		}
		wg.Wait()
	}},
	{"WriteAtomic makes, replaces, and takes an empty file", func(t *testing.T, fsys FS, dir string) {
		require.NoError(t, WriteAtomic(fsys, dir+"/CURRENT", []byte("one")))
		require.Equal(t, "one", read(t, fsys, dir+"/CURRENT"))
		require.NoError(t, WriteAtomic(fsys, dir+"/CURRENT", []byte("second")))
		require.Equal(t, "second", read(t, fsys, dir+"/CURRENT"))
		require.NoError(t, WriteAtomic(fsys, dir+"/CURRENT", nil))
		require.Equal(t, "", read(t, fsys, dir+"/CURRENT"))
		requireList(t, fsys, dir, "CURRENT")
	}},
}

func TestBehaviour(t *testing.T) {
	systems := []struct {
		name string
		make func(t *testing.T) (FS, string)
	}{
		{"OS", func(t *testing.T) (FS, string) { return OS, filepath.ToSlash(t.TempDir()) }},
		{"OS, watched", func(t *testing.T) (FS, string) { return Watch(OS), filepath.ToSlash(t.TempDir()) }},
		{"Mem", func(t *testing.T) (FS, string) {
			m := NewMem()
			require.NoError(t, m.MkdirAll("/data/store"))
			return m, "/data/store"
		}},
		{"a crash image of a Mem", func(t *testing.T) (FS, string) {
			m := NewMem()
			require.NoError(t, m.MkdirAll("/data/store"))
			return m.CrashImage(KeepAll, nil), "/data/store"
		}},
		{"a kill image of a Mem", func(t *testing.T) (FS, string) {
			m := NewMem()
			require.NoError(t, m.MkdirAll("/data/store"))
			return m.KillImage(), "/data/store"
		}},
	}
	for _, system := range systems {
		t.Run(system.name, func(t *testing.T) {
			for _, b := range behaviours {
				t.Run(b.name, func(t *testing.T) {
					fsys, dir := system.make(t)
					b.test(t, fsys, dir)
				})
			}
		})
	}
}

func closeFile(t testing.TB, f File) {
	t.Helper()
	require.NoError(t, f.Close())
}

func requireList(t testing.TB, fsys FS, dir string, want ...string) {
	t.Helper()
	got, err := fsys.List(dir)
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
	require.IsIncreasing(t, append([]string{""}, got...))
}
