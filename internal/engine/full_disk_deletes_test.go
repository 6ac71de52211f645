package engine

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// deletions are ways to delete all that a life has written.
var deletions = map[string]func(l *fullLife){
	"key by key": func(l *fullLife) {
		for k := range l.have {
			insist(l, func() error {
				_, err := l.e.Delete(l.t.Context(), []byte(k), buffered)
				return err
			})
		}
		clear(l.have)
	},
	"by range": func(l *fullLife) {
		insist(l, func() error {
			_, err := l.e.DeleteRange(l.t.Context(), kv.Range{Start: []byte("key-"), End: []byte("key.")}, buffered)
			return err
		})
		clear(l.have)
	},
}

// insist writes until that is taken, or for a minute of the fake clock.
func insist(l *fullLife, write func() error) {
	l.t.Helper()
	for begin := time.Now(); ; time.Sleep(housekeepingEvery) {
		err := write()
		if err == nil {
			return
		}
		require.True(l.t, errors.Is(err, kv.ErrReadOnly) || errors.Is(err, kv.ErrOverloaded), "%v", err)
		require.Less(l.t, time.Since(begin), time.Minute, "refused for good: %v", err)
	}
}

// TestDeletesDoNotWaitForAFlushWithoutSpace: on a disk without space no flush makes room in full
// memtables, so deletes are taken as long as the log has room.
func TestDeletesDoNotWaitForAFlushWithoutSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		o := fullOptions(mem)
		o.SegmentBytes = 4 << 20
		e := open(t, o)
		h := newHog(mem, 64<<20, 0)
		h.greedy.Store(true)
		n := 0
		var err error
		for ; err == nil; n++ {
			_, err = e.Put(t.Context(), fmt.Appendf(nil, "key-%03d", n), make([]byte, 200), buffered)
		}
		require.True(t, errors.Is(err, kv.ErrReadOnly) || errors.Is(err, kv.ErrOverloaded), "%v", err)
		time.Sleep(5 * housekeepingEvery)
		for i := range 2000 {
			_, err := e.Delete(t.Context(), fmt.Appendf(nil, "key-%03d", i%n), buffered)
			require.NoError(t, err, i)
		}
		h.leave()
		time.Sleep(20 * housekeepingEvery)
		_, err = e.Put(t.Context(), []byte("key-000"), []byte("back"), synced)
		require.NoError(t, err)
	})
}

// TestTheLogGivesItsLastSpaceToAFlush: when all is deleted and the disk has not a byte, the
// log keeps no room for further deletes, since a flush of the deletes frees much more.
func TestTheLogGivesItsLastSpaceToAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		e := open(t, fullOptions(mem))
		h := newHog(mem, 64<<20, 0)
		l := &fullLife{t: t, e: e, have: map[string]string{}}
		l.puts(0, 1500)
		h.greedy.Store(true)
		for i := 0; l.refused == 0; i++ {
			l.puts(i, 1)
		}
		time.Sleep(5 * housekeepingEvery)
		remove := func(from, to string) {
			insist(l, func() error {
				_, err := e.DeleteRange(t.Context(), kv.Range{Start: []byte(from), End: []byte(to)}, buffered)
				return err
			})
		}
		remove("key-000", "key-001")
		time.Sleep((starvedTicks - 2) * housekeepingEvery) // the other process takes what the log can spare
		remove("key-", "key.")
		clear(l.have)
		h.stay()
		usage, err := mem.Usage("/")
		require.NoError(t, err)
		mem.SetCapacity(int64(max(usage.Total, leastTotal)))
		insist(l, func() error {
			_, err := e.Put(t.Context(), []byte("key-000"), []byte("back"), synced)
			return err
		})
		l.have["key-000"] = "back"
		l.check()
	})
}

// freedWithin is how soon after the deletes a full disk takes writes again, by the fake
// clock: some ticks of the maintenance loop, and much less than nameSpan.
const freedWithin = 6 * housekeepingEvery

// leastTotal is a disk on which the store of fullOptions takes writes when it is empty: what has to be
// free for that, and its own files.
const leastTotal = 192 << 10

// TestDeletesOnAFullDiskFreeIt fills the disk to its last byte, with the ballast used up,
// and then deletes everything. The process that filled it keeps its space, so all space
// that becomes free is the store's own: from tables and value files, or from the log alone.
// It becomes free at once, although the log then loses request ids of recent writes: a
// write sent again after a crash is recognised, or its outcome is uncertain.
func TestDeletesOnAFullDiskFreeIt(t *testing.T) {
	for what, remove := range deletions {
		for _, logAlone := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, log alone=%v", what, logAlone), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := vfs.NewMem()
					o := fullOptions(mem)
					puts := 1500
					if logAlone {
						o.MemtableBytes, o.SegmentBytes, puts = 16<<20, 1<<20, 1200
					}
					e, err := Open("data", o)
					require.NoError(t, err)
					t.Cleanup(func() { assert.NoError(t, e.Close()) })
					h := newHog(mem, 64<<20, 0)
					l := &fullLife{t: t, e: e, have: map[string]string{}}
					l.puts(0, puts)
					named := kv.Write{
						Op:        kv.Op{Kind: kv.KindPut, Key: []byte("named"), Value: []byte("v")},
						RequestID: kv.RequestID{ClientID: 7, Sequence: 1},
					}
					require.NoError(t, errors.Join(e.Write(t.Context(), []*kv.Write{&named}), named.Err))
					h.greedy.Store(true)
					for i := 0; l.refused == 0; i++ {
						l.puts(i, 1)
					}
					time.Sleep(5 * housekeepingEvery)
					require.Zero(t, e.disk.ballast.have.Load(), "the ballast is used up")
					l.check()
					h.stay()
					usage, err := mem.Usage("/")
					require.NoError(t, err)
					require.Zero(t, usage.Free)
					mem.SetCapacity(int64(max(usage.Total, leastTotal)))

					begin := time.Now()
					remove(l)
					insist(l, func() error {
						_, err := e.Put(t.Context(), []byte("key-000"), []byte("back"), synced)
						return err
					})
					took := time.Since(begin)
					t.Logf("writable %v after the deletes", took)
					require.LessOrEqual(t, took, freedWithin)
					l.have["key-000"] = "back"
					l.check()
					image := mem.KillImage()
					require.NoError(t, e.Close())
					image.SetCapacity(1 << 30)
					o.FS = image
					l.e, err = Open("data", o)
					require.NoError(t, err)
					l.check()
					again := kv.Write{Op: named.Op, RequestID: named.RequestID}
					again.RequestID.Retried = true
					require.NoError(t, l.e.Write(t.Context(), []*kv.Write{&again}))
					if !errors.Is(again.Err, kv.ErrUncertain) {
						require.NoError(t, again.Err)
						require.Equal(t, named.Version, again.Version, "applied twice")
					}
					require.NoError(t, l.e.Close())
				})
			})
		}
	}
}
