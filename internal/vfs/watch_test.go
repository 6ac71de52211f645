package vfs_test

import (
	"path"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// TestEveryOperationThatHangsIsSeen hangs each operation of FS and File in turn, and
// expects Pass to name it until it returns.
func TestEveryOperationThatHangsIsSeen(t *testing.T) {
	type call struct {
		kind faultfs.Kind
		want vfs.Operation
		do   func(fsys vfs.FS, f vfs.File) error
	}
	calls := map[string]call{
		"Create":        {faultfs.Create, vfs.Operation{Kind: "create", Name: "d/new"}, func(fsys vfs.FS, _ vfs.File) error { return opened(fsys.Create("d/new")) }},
		"Open":          {faultfs.Open, vfs.Operation{Kind: "open", Name: "d/old"}, func(fsys vfs.FS, _ vfs.File) error { return opened(fsys.Open("d/old")) }},
		"OpenReadWrite": {faultfs.OpenReadWrite, vfs.Operation{Kind: "open", Name: "d/old"}, func(fsys vfs.FS, _ vfs.File) error { return opened(fsys.OpenReadWrite("d/old")) }},
		"Remove":        {faultfs.Remove, vfs.Operation{Kind: "remove", Name: "d/old"}, func(fsys vfs.FS, _ vfs.File) error { return fsys.Remove("d/old") }},
		"Rename":        {faultfs.Rename, vfs.Operation{Kind: "rename", Name: "d/old"}, func(fsys vfs.FS, _ vfs.File) error { return fsys.Rename("d/old", "d/new") }},
		"MkdirAll":      {faultfs.MkdirAll, vfs.Operation{Kind: "mkdir", Name: "d/e"}, func(fsys vfs.FS, _ vfs.File) error { return fsys.MkdirAll("d/e") }},
		"SyncDir":       {faultfs.SyncDir, vfs.Operation{Kind: "sync", Name: "d"}, func(fsys vfs.FS, _ vfs.File) error { return fsys.SyncDir("d") }},
		"List":          {faultfs.List, vfs.Operation{Kind: "list", Name: "d"}, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.List("d"); return err }},
		"Stat":          {faultfs.Stat, vfs.Operation{Kind: "stat", Name: "d/old"}, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Stat("d/old"); return err }},
		"Usage":         {faultfs.Usage, vfs.Operation{Kind: "statfs", Name: "d"}, func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Usage("d"); return err }},
		"Lock": {faultfs.Lock, vfs.Operation{Kind: "lock", Name: "d/LOCK"}, func(fsys vfs.FS, _ vfs.File) error {
			lock, err := fsys.Lock("d/LOCK")
			if err != nil {
				return err
			}
			return lock.Close()
		}},
		"LockExisting": {faultfs.LockExisting, vfs.Operation{Kind: "lock", Name: "d"}, func(fsys vfs.FS, _ vfs.File) error {
			lock, err := fsys.LockExisting("d", true)
			if err != nil {
				return err
			}
			return lock.Close()
		}},
		"File.Stat": {faultfs.Stat, vfs.Operation{Kind: "stat", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { _, err := f.Stat(); return err }},
		"ReadAt":    {faultfs.Read, vfs.Operation{Kind: "read", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		"WriteAt":   {faultfs.Write, vfs.Operation{Kind: "write", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		"Sync":      {faultfs.Sync, vfs.Operation{Kind: "sync", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { return f.Sync() }},
		"Size":      {faultfs.Size, vfs.Operation{Kind: "stat", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { _, err := f.Size(); return err }},
		"SetAccess": {faultfs.SetAccess, vfs.Operation{Kind: "chmod", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error {
			info, err := f.Stat()
			if err != nil {
				return err
			}
			return f.SetAccess(info)
		}},
		"Attributes": {faultfs.Attributes, vfs.Operation{Kind: "getxattr", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { _, err := f.Attributes(); return err }},
		"SetAttributes": {faultfs.SetAttributes, vfs.Operation{Kind: "setxattr", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error {
			return f.SetAttributes(nil)
		}},
		"Truncate": {faultfs.Truncate, vfs.Operation{Kind: "truncate", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { return f.Truncate(1) }},
		"Reserve":  {faultfs.Reserve, vfs.Operation{Kind: "reserve", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { return f.Reserve(3, 10) }},
		"Close":    {faultfs.Close, vfs.Operation{Kind: "close", Name: "d/old"}, func(_ vfs.FS, f vfs.File) error { return f.Close() }},
	}
	for _, name := range fsMethods {
		assert.Contains(t, calls, name)
	}
	for _, name := range fileMethods {
		if name != "Name" && name != "StartWriteback" { // which fault injection does not know
			assert.Contains(t, calls, name)
		}
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				require.NoError(t, mem.MkdirAll("d"))
				require.NoError(t, vfs.WriteAtomic(mem, "d/old", []byte("old")))
				slow := faultfs.Wrap(mem, nil)
				w := vfs.Watch(slow)
				f, err := w.OpenReadWrite("d/old")
				require.NoError(t, err)
				release := make(chan struct{})
				slow.SetInjector(faultfs.At(0, true, faultfs.Fault{Delay: func() { <-release }}, faultfs.OnKind(c.kind)))
				ended := make(chan error, 1)
				go func() { ended <- c.do(w, f) }()
				synctest.Wait()
				require.Empty(t, w.Pass(time.Hour, 1), "it has not been seen before")
				require.Empty(t, w.Pass(999*time.Millisecond, time.Second))
				want := c.want
				want.Age = time.Second
				require.Equal(t, []vfs.Operation{want}, w.Pass(time.Millisecond, time.Second))
				want.Age = 3 * time.Second
				require.Equal(t, []vfs.Operation{want}, w.Pass(2*time.Second, time.Second))
				close(release)
				require.NoError(t, <-ended)
				require.Empty(t, w.Pass(time.Hour, 0))
				require.NoError(t, f.Close())
			})
		})
	}
}

func opened(f vfs.File, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}

// TestTheOldestOperationComesFirst: also when others begin and end in between.
func TestTheOldestOperationComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faultfs.Wrap(vfs.NewMem(), nil)
		w := vfs.Watch(slow)
		release := map[string]chan struct{}{}
		slow.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			return faultfs.Fault{Delay: func() { <-release[op.Name] }}
		}))
		begin := func(name string) {
			release[name] = make(chan struct{})
			go func() { _ = w.Remove(name) }() // there is no such file
			synctest.Wait()
			w.Pass(time.Second, 0)
		}
		names := func() (names []string) {
			for _, op := range w.Pass(0, 0) {
				names = append(names, path.Base(op.Name))
			}
			return names
		}
		for _, name := range []string{"a", "b", "c"} {
			begin(name)
		}
		require.Equal(t, []string{"a", "b", "c"}, names())
		close(release["a"])
		synctest.Wait()
		require.Equal(t, []string{"b", "c"}, names())
		begin("d")
		close(release["c"])
		synctest.Wait()
		require.Equal(t, []string{"b", "d"}, names())
		close(release["b"])
		close(release["d"])
	})
}

// TestWatchingAllocatesNothing: it is on the way of every write of the log.
func TestWatchingAllocatesNothing(t *testing.T) {
	f, err := vfs.Watch(vfs.OS).Create(path.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	piece := []byte("piece")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := f.WriteAt(piece, 0); err != nil {
			t.Error(err)
		}
	}))
	require.NoError(t, f.Close())
}
