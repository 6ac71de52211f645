package backup

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// checkpointStore is a source with two partitions.
func checkpointStore() *store {
	s := newStore("STORE", "the store of the other node")
	for p := range uint32(2) {
		v := manifest.Version{Num: 9, Partition: p, NextFile: 20, FlushedSeq: 7, MaxSeq: 7, Position: []byte{1, 2, 3}}
		name, data, current := v.Encode()
		dir := []string{"p-0000", "p-0001"}[p]
		s.set(path.Join(dir, name), string(data))
		s.set(path.Join(dir, manifest.CurrentName), string(current))
		s.set(path.Join(dir, "000012.sst"), "new table of "+dir)
	}
	return s
}

// oldStore is a data directory with a store that a checkpoint replaces.
func oldStore(t *testing.T) *vfs.Mem {
	fsys := dataDir(t)
	put(t, fsys, "data/STORE", "the store")
	put(t, fsys, "data/wal/000001.raft", "the log")
	for _, dir := range []string{"data/p-0000/", "data/p-0001/"} {
		put(t, fsys, dir+"CURRENT", "old")
		put(t, fsys, dir+"MANIFEST-000003", "old")
		put(t, fsys, dir+"000012.sst", "an old table")
		put(t, fsys, dir+"000013.sst", "another old table")
		put(t, fsys, dir+"lost+found/000001.sst", "set aside")
		require.NoError(t, fsys.SyncDir(dir))
	}
	require.NoError(t, fsys.SyncDir("data"))
	return fsys
}

// installed checks that the partitions are those of the checkpoint, and that the rest stayed.
func installed(t *testing.T, fsys vfs.FS, s *store, what string) {
	t.Helper()
	for _, name := range s.names {
		if name != "STORE" {
			require.Equal(t, s.contents[name], content(t, fsys, path.Join("data", name)), what)
		}
	}
	for _, dir := range []string{"data/p-0000", "data/p-0001"} {
		names, err := fsys.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"000012.sst", "CURRENT", "MANIFEST-000009", "lost+found"}, names, what)
	}
	require.Equal(t, "the store", content(t, fsys, "data/STORE"))
	require.Equal(t, "the log", content(t, fsys, "data/wal/000001.raft"))
	_, err := fsys.Stat("data/incoming")
	require.ErrorIs(t, err, fs.ErrNotExist, what)
}

func install(fsys vfs.FS) error {
	in, err := Received(fsys, "data")
	if err != nil {
		return err
	}
	return in.Install(fsys, "data")
}

// Power is cut, or the process killed, before every operation of an installation. Once it is
// repeated the store is that of the checkpoint. After the last step no crash undoes it.
func TestInstallAtEveryCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	disk, s := oldStore(t), checkpointStore()
	_, err := receive(disk, s)
	require.NoError(t, err)
	images, begun := 0, 0
	disk.SetHook(func(step vfs.Step) {
		for _, policy := range vfs.CrashPolicies {
			image := disk.CrashImage(policy, rng)
			images++
			switch err := install(image); {
			case err == nil:
				begun++
			default:
				require.ErrorIs(t, err, fs.ErrNotExist, "%v before step %d (%s %s)", policy, step.N, step.Kind, step.Name)
			}
			require.NoError(t, RemoveIncoming(image, "data")) // what is left once the manifest is gone
			installed(t, image.CrashImage(vfs.DropAll, nil), s, step.Name)
		}
	})
	require.NoError(t, install(disk))
	disk.SetHook(nil)
	installed(t, disk.CrashImage(vfs.DropAll, nil), s, "the end")
	require.Greater(t, begun, 30)
	require.Less(t, begun, images, "at last there is nothing to install")
}

// Every operation fails in turn. The next attempt goes on.
func TestInstallAtEveryFault(t *testing.T) {
	for i := 0; ; i++ {
		disk, s := oldStore(t), checkpointStore()
		_, err := receive(disk, s)
		require.NoError(t, err)
		fsys := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, false))
		err = install(fsys)
		if !fsys.Fired() {
			require.NoError(t, err)
			installed(t, disk, s, "no fault")
			require.Greater(t, i, 20)
			return
		}
		if err == nil {
			continue
		}
		if err = install(disk); errors.Is(err, fs.ErrNotExist) {
			err = RemoveIncoming(disk, "data") // the fault came after the installation
		}
		require.NoError(t, err, "operation %d", i)
		installed(t, disk, s, "after a fault")
	}
}

// What is not whole is not installed.
func TestInstallOfWhatIsDamaged(t *testing.T) {
	for what, damage := range map[string]func(fsys vfs.FS) error{
		"a table is missing":    func(fsys vfs.FS) error { return fsys.Remove("data/incoming/p-0000/000012.sst") },
		"a table is cut":        func(fsys vfs.FS) error { return vfs.WriteAtomic(fsys, "data/incoming/p-0001/000012.sst", nil) },
		"a manifest is missing": func(fsys vfs.FS) error { return fsys.Remove("data/incoming/p-0001/MANIFEST-000009") },
		"a manifest is damaged": func(fsys vfs.FS) error {
			return vfs.WriteAtomic(fsys, "data/incoming/p-0001/MANIFEST-000009", []byte("x"))
		},
		"the list is damaged": func(fsys vfs.FS) error { return vfs.WriteAtomic(fsys, "data/incoming/COMPLETE", []byte("x")) },
	} {
		t.Run(what, func(t *testing.T) {
			fsys := oldStore(t)
			_, err := receive(fsys, checkpointStore())
			require.NoError(t, err)
			require.NoError(t, damage(fsys))
			require.ErrorIs(t, install(fsys), kv.ErrCorrupt)
		})
	}
	fsys, s := oldStore(t), checkpointStore()
	v := manifest.Version{Num: 9, Partition: 5, NextFile: 20}
	name, data, _ := v.Encode()
	s.set(path.Join("p-0005", name), string(data))
	_, err := receive(fsys, s)
	require.NoError(t, err)
	require.ErrorContains(t, install(fsys), "files of partition 2 are not listed")
	_, err = Received(dataDir(t), "data")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
