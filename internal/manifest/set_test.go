package manifest

import (
	"fmt"
	"path"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestATableGoesWithItsLastReader(t *testing.T) {
	fsys, h := filled(t)
	old := h.Acquire()
	again := h.Acquire()
	require.NoError(t, h.compact(CompactDeltas, 0, 2, "b", "z"))
	middle := h.Acquire()
	require.NoError(t, h.compact(CompactBase, 0, 1, "a", "z"))

	requireTables(t, fsys, old.Version)
	requireTables(t, fsys, middle.Version)
	again.Release()
	requireTables(t, fsys, old.Version)
	tables := append(append(nums(old.Deltas[0]), nums(old.Deltas[1])...), nums(old.Base)...)
	old.Release()
	requireTables(t, fsys, middle.Version)
	for _, num := range tables[:2] {
		_, err := fsys.Stat(path.Join(testDir, TableName(num)))
		require.ErrorIs(t, err, syscall.ENOENT)
	}
	middle.Release()
	names, err := fsys.List(testDir)
	require.NoError(t, err)
	require.Len(t, names, 3, "CURRENT, its manifest and the one table: %v", names)
}

func TestReleaseTwicePanics(t *testing.T) {
	_, h := filled(t)
	ref := h.Acquire()
	ref.Release()
	require.Panics(t, ref.Release)
	h.Acquire().Release() // no lock is held
}

func TestNothingIsObsoleteBeforeTheManifestIsDurable(t *testing.T) {
	fsys, h := filled(t)
	removed := 0
	set, err := Open(Options{FS: fsys, Dir: testDir, Partition: 3, Obsolete: func(_ FileKind, num kv.FileNum) {
		removed++
		v, err := Load(fsys.CrashImage(vfs.DropAll, nil), testDir, 3)
		require.NoError(t, err)
		for _, live := range v.Files() {
			require.NotEqual(t, num, live)
		}
	}})
	require.NoError(t, err)
	h.Set = set
	require.NoError(t, h.compact(CompactBase, 0, 2))
	require.Equal(t, 3, removed)
}

// Readers hold versions while others install: under the race detector, and with
// the bytes of every table read while its Version is held.
func TestReadersKeepTheirFilesWhileOthersInstall(t *testing.T) {
	fsys := newMem(t)
	h, err := openHome(fsys)
	require.NoError(t, err)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ref := h.Acquire()
				for meta := range ref.Tables() {
					name := path.Join(testDir, TableName(meta.Num))
					data, err := readFile(fsys, name, 1<<20)
					if assert.NoError(t, err) {
						assert.Equal(t, tableBytes(meta), data)
					}
				}
				assert.NoError(t, ref.check())
				ref.Release()
			}
		})
	}
	for i := range 150 {
		seq := kv.SeqNum(10*i + 1)
		require.NoError(t, h.flush("a", "z", seq, seq+9))
		if i%3 == 2 {
			require.NoError(t, h.compact(CompactDeltas, 0, 2, "a", "m", "n", "z"))
		}
		if i%10 == 9 {
			require.NoError(t, h.compact(CompactBase, 1, len(h.currentVersion().Deltas), "a", "z"))
		}
	}
	close(stop)
	readers.Wait()
	names, err := fsys.List(testDir)
	require.NoError(t, err)
	live := 2
	for range h.currentVersion().Tables() {
		live++
	}
	require.Len(t, names, live)
}

func TestNumbersAreUniqueAmongGoroutinesAndRestarts(t *testing.T) {
	fsys := newMem(t)
	var mu sync.Mutex
	seen := map[kv.FileNum]bool{}
	for range 3 {
		h, err := openHome(fsys)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range int(reservedNums) { // beyond the ceiling, several times
					num, err := h.NewFileNum()
					mu.Lock()
					if assert.NoError(t, err) && seen[num] {
						t.Errorf("%d was handed out twice", num)
					}
					seen[num] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		v := h.currentVersion()
		for num := range seen {
			require.Less(t, num, v.NextFile, "the ceiling is above every number in use")
		}
	}
	require.Len(t, seen, 3*4*int(reservedNums))
}

func TestAnEditThatDoesNotFitChangesNothing(t *testing.T) {
	fsys, h := filled(t)
	want := h.contents()
	meta, err := h.write("a", "z", 31, 40)
	require.NoError(t, err)
	steps := fsys.Steps()

	require.ErrorContains(t, h.Install(Edit{Kind: Flush, Added: Run{meta}, FlushedSeq: 39}), "E1")
	short := meta
	short.Size--
	require.ErrorContains(t, h.Install(Edit{Kind: Flush, Added: Run{short}, FlushedSeq: 40}), "has 1")
	absent := meta
	absent.Num++
	require.ErrorIs(t, h.Install(Edit{Kind: Flush, Added: Run{absent}, FlushedSeq: 40}), syscall.ENOENT)
	require.Equal(t, steps, fsys.Steps(), "nothing was written")
	require.Equal(t, want, h.contents())
	require.NoError(t, h.Install(Edit{Kind: Flush, Added: Run{meta}, FlushedSeq: 40}))
}

func TestAFailedPublicationIsFinal(t *testing.T) {
	fsys, h := filled(t)
	faulty := faultfs.Wrap(fsys, nil)
	var err error
	h.Set, err = Open(Options{FS: faulty, Dir: testDir, Partition: 3, Obsolete: h.remove})
	require.NoError(t, err)
	h.fs = faulty
	require.NoError(t, h.flush("a", "z", 31, 40))
	want := h.contents()

	faulty.SetInjector(faultfs.FailAt(0, syscall.EIO, false, faultfs.OnKind(faultfs.Sync), faultfs.OnName("MANIFEST-*")))
	err = h.Install(Edit{Kind: Flush, FlushedSeq: 50})
	require.ErrorIs(t, err, kv.ErrFailed)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, want, h.contents(), "reading continues")

	count := faulty.Count()
	require.ErrorIs(t, h.Install(Edit{Kind: Flush, FlushedSeq: 50}), kv.ErrFailed, "the fault is gone, the failure stays")
	h.mu.next = h.currentVersion().NextFile
	_, err = h.NewFileNum()
	require.ErrorIs(t, err, kv.ErrFailed)
	require.Equal(t, count, faulty.Count(), "nothing was tried")
}

// Every operation of a life fails, once or from then on. Whatever the failure,
// the disk holds what was acknowledged, or in addition the step that failed.
func TestEveryFault(t *testing.T) {
	testsize.OneGoroutine(t)
	var history []string
	require.NoError(t, life(newMem(t), func(h *home) { history = append(history, h.contents()) }))
	for _, fault := range []faultfs.Fault{
		{Err: syscall.EIO}, {Err: syscall.ENOSPC, Short: 3}, {Err: syscall.EIO, DropDirty: true},
	} {
		for _, sticky := range []bool{false, true} {
			for i := 0; ; i++ {
				fsys := newMem(t)
				faulty := faultfs.Wrap(fsys, faultfs.At(i, sticky, fault))
				acked := 0
				err := life(faulty, func(*home) { acked++ })
				if !faulty.Fired() {
					require.NoError(t, err)
					require.Greater(t, i, 100)
					break
				}
				for _, image := range []*vfs.Mem{fsys.CrashImage(vfs.DropAll, nil), fsys.CrashImage(vfs.KeepAll, nil), fsys.KillImage()} {
					c := crash{image: image, acked: acked}
					allowed := history[max(acked-1, 0):min(acked+1, len(history))]
					h := requireRecovered(t, &c, allowed)
					require.NoError(t, goOn(h), fmt.Sprintf("operation %d, %+v, sticky %t", i, fault, sticky))
				}
			}
		}
	}
}

func TestALeftoverManifestIsReported(t *testing.T) {
	fsys, h := filled(t)
	faulty := faultfs.Wrap(fsys, faultfs.FailAt(0, syscall.EACCES, true, faultfs.OnKind(faultfs.Remove), faultfs.OnName("MANIFEST-[0-9][0-9][0-9][0-9][0-9][0-9]")))
	var told []error
	set, err := Open(Options{FS: faulty, Dir: testDir, Partition: 3, Obsolete: h.remove,
		Listener: &event.Listener{BackgroundError: func(err error) { told = append(told, err) }}})
	require.NoError(t, err)
	require.NoError(t, set.Install(Edit{Kind: Flush, FlushedSeq: 50}))
	require.Len(t, told, 1)
	require.ErrorIs(t, told[0], syscall.EACCES)
	h, err = openHome(fsys)
	require.NoError(t, err)
	require.Equal(t, kv.SeqNum(50), h.currentVersion().FlushedSeq)
}
