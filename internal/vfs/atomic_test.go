package vfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWriteAtomicAtEveryCrash: power fails before each step and after the last;
// the image holds the old content or the new, the new for sure once WriteAtomic
// has returned, and a file left from the crash does not hinder the next call.
//
// W4: one source opened its temporary file only if it did not exist, so that
// a single crash between create and rename made the store unusable for ever.
func TestWriteAtomicAtEveryCrash(t *testing.T) {
	const name = "d/CURRENT"
	prepare := func() *Mem {
		m := NewMem()
		require.NoError(t, m.MkdirAll("d"))
		require.NoError(t, m.SyncDir("/"))
		require.NoError(t, WriteAtomic(m, name, []byte("old")))
		return m
	}
	check := func(image *Mem, allowed map[string]bool, what string) {
		require.Contains(t, allowed, read(t, image, name), what)
		require.NoError(t, WriteAtomic(image, name, []byte("next")), what)
		require.Equal(t, "next", read(t, image.CrashImage(DropAll, nil), name), what)
		requireList(t, image, "d", "CURRENT")
	}
	leftovers, crashes := 0, 0
	m := prepare()
	m.SetHook(func(step Step) {
		crashes++
		for _, policy := range CrashPolicies {
			for seed := range uint64(20) {
				image := m.CrashImage(policy, rand.New(rand.NewPCG(seed, uint64(step.N))))
				if read(t, image, name+".tmp") != absent {
					leftovers++
				}
				check(image, set("old", "new"), fmt.Sprintf("step %d (%s %s), %v, seed %d", step.N, step.Kind, step.Name, policy, seed))
			}
		}
	})
	require.NoError(t, WriteAtomic(m, name, []byte("new")))
	m.SetHook(nil)
	for _, policy := range CrashPolicies {
		check(m.CrashImage(policy, rand.New(rand.NewPCG(1, 1))), set("new"), policy.String())
	}
	assert.Equal(t, 6, crashes, "remove, create, write, sync, rename, syncdir")
	assert.Positive(t, leftovers, "some image must have the leftover that W4 is about")
}

func TestWriteAtomicReplacesALeftover(t *testing.T) {
	mem := NewMem()
	for name, where := range map[string]struct {
		fsys FS
		dir  string
	}{"OS": {OS, filepath.ToSlash(t.TempDir())}, "Mem": {mem, "/"}} {
		t.Run(name, func(t *testing.T) {
			file := where.dir + "/CURRENT"
			closeFile(t, create(t, where.fsys, file+".tmp", "a leftover that is longer than the data"))
			require.NoError(t, WriteAtomic(where.fsys, file, []byte("data")))
			require.Equal(t, "data", read(t, where.fsys, file))
			requireList(t, where.fsys, where.dir, "CURRENT")
		})
	}
}

func TestWriteAtomicOnAFullDisk(t *testing.T) {
	m := NewMem()
	require.NoError(t, WriteAtomic(m, "CURRENT", []byte("old")))
	m.SetCapacity(8)
	require.Error(t, WriteAtomic(m, "CURRENT", []byte("too long")))
	require.Equal(t, "old", read(t, m, "CURRENT"))
	requireList(t, m, "/", "CURRENT")
	require.NoError(t, WriteAtomic(m, "CURRENT", []byte("short")))
	require.Equal(t, "short", read(t, m, "CURRENT"))
}

// access returns the permissions, user and group of a file.
func access(t *testing.T, fsys FS, name string) (mode os.FileMode, uid, gid uint32) {
	t.Helper()
	info, err := fsys.Stat(name)
	require.NoError(t, err)
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		uid, gid = s.Uid, s.Gid
	}
	return info.Mode(), uid, gid
}

func TestReplaceKeepsThePermissions(t *testing.T) {
	mem, dir := NewMem(), filepath.ToSlash(t.TempDir())
	for name, where := range map[string]struct {
		fsys FS
		dir  string
	}{"OS": {OS, dir}, "Mem": {mem, ""}} {
		t.Run(name, func(t *testing.T) {
			file := where.dir + "/tokens"
			require.NoError(t, Replace(where.fsys, file, []byte("first")))
			mode, _, _ := access(t, where.fsys, file)
			require.Equal(t, os.FileMode(0o600), mode, "there was none")
			f, err := where.fsys.OpenReadWrite(file)
			require.NoError(t, err)
			info, err := f.Stat()
			require.NoError(t, err)
			require.NoError(t, f.SetAccess(withMode{info, 0o644}))
			closeFile(t, f)
			require.NoError(t, Replace(where.fsys, file, []byte("second")))
			mode, _, _ = access(t, where.fsys, file)
			require.Equal(t, os.FileMode(0o644), mode)
			require.Equal(t, "second", read(t, where.fsys, file))
		})
	}
	mode, _, _ := access(t, mem.CrashImage(DropAll, nil), "tokens")
	require.Equal(t, os.FileMode(0o644), mode)
	mode, _, _ = access(t, mem.KillImage(), "tokens")
	require.Equal(t, os.FileMode(0o644), mode)
}

func TestReplaceKeepsUserAndGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, Replace(OS, file, nil))
	uid, gid := os.Getuid(), -1
	groups, err := os.Getgroups()
	require.NoError(t, err)
	for _, g := range groups {
		if g != os.Getgid() {
			gid = g
		}
	}
	if uid == 0 {
		uid, gid = 12345, 12346
	} else if gid < 0 {
		t.Skip("SKIPPED: needs root, or a second group")
	}
	require.NoError(t, os.Chmod(file, 0o640))
	require.NoError(t, os.Chown(file, uid, gid))
	require.NoError(t, Replace(OS, file, []byte("new")))
	mode, u, g := access(t, OS, file)
	require.Equal(t, os.FileMode(0o640), mode)
	require.EqualValues(t, uid, u)
	require.EqualValues(t, gid, g)
}

// An operator may have a file NAME.tmp beside one that is replaced. A leftover of a crash goes.
func TestReplaceLeavesAFileOfTheOperator(t *testing.T) {
	m := NewMem()
	closeFile(t, create(t, m, "state.tmp", "the operator's"))
	closeFile(t, create(t, m, "state.kvd-tmp", "a leftover that is longer than the data"))
	for _, text := range []string{"first", "second"} {
		require.NoError(t, Replace(m, "state", []byte(text)))
		require.Equal(t, text, read(t, m, "state"))
		require.Equal(t, "the operator's", read(t, m, "state.tmp"))
		requireList(t, m, "/", "state", "state.tmp")
	}
}

// The permissions of a symbolic link are 0777, and mean nothing.
func TestReplaceOfALinkIsPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.Symlink("elsewhere", file))
	require.NoError(t, Replace(OS, file, []byte("new")))
	mode, _, _ := access(t, OS, file)
	require.Equal(t, os.FileMode(0o600), mode)
}
