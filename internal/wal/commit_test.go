package wal

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// counter is a Waker that counts.
type counter struct{ wakes, works atomic.Int64 }

func (c *counter) Wake()     { c.wakes.Add(1) }
func (c *counter) RunReady() { c.works.Add(1) }

func (c *counter) woken() bool { return c.wakes.Load()+c.works.Load() > 0 }

// TestSyncedRecordsWaitForTheSync: while a sync runs, buffered records are written and
// acknowledged, and no record that waits for the sync is acknowledged.
func TestSyncedRecordsWaitForTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := testOptions(&syncFS{newDisk(t), g.sync})
		o.SegmentBytes = 1 << 20
		l, _, _ := mustOpen(t, o)
		g.close()

		add := func(level kv.Durability) (*counter, Pos) {
			w := &counter{}
			_, pos, err := appendTo(l, []byte("payload"), 1, level, w, nil)
			require.NoError(t, err)
			l.Flush()
			return w, pos
		}
		s1, p1 := add(synced)
		<-g.waiting // the sync of s1 runs
		s2, p2 := add(synced)
		b, pb := add(buffered)
		s3, p3 := add(synced)
		synctest.Wait()
		assert.True(t, b.woken())
		assert.GreaterOrEqual(t, l.Written(), pb)
		for _, s := range []*counter{s1, s2, s3} {
			assert.False(t, s.woken(), "acknowledged before the sync returned")
		}
		assert.Zero(t, l.Synced())

		// The next sync serves all records appended meanwhile.
		syncs := l.Stats().Syncs
		g.open()
		synctest.Wait()
		assert.Equal(t, syncs+2, l.Stats().Syncs)
		for _, s := range []*counter{s1, s2, s3} {
			assert.True(t, s.woken())
		}
		assert.GreaterOrEqual(t, l.Synced(), max(p1, p2, p3))
		require.NoError(t, l.Close())
	})
}

func TestManyWritersShareSyncs(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 64 << 10
	l, _, _ := mustOpen(t, o)
	const writers, each = 32, 40
	var mu sync.Mutex
	acked := map[kv.SeqNum]string{}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				r := put(t, l, payload(i*each+j), uint32(j%3+1), []kv.Durability{synced, synced, buffered, memory}[(i+j)%4])
				mu.Lock()
				acked[r.base] = r.payload
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	s := l.Stats()
	assert.EqualValues(t, writers*each, s.Records)
	assert.Less(t, s.Syncs, s.Records)
	assert.GreaterOrEqual(t, s.Segments, 1)
	assert.Positive(t, s.LiveBytes)
	assert.GreaterOrEqual(t, s.SyncTime, s.SyncMax)

	o.Fresh = false
	l, recs, _ := mustOpen(t, o)
	require.Len(t, recs, writers*each)
	next := kv.SeqNum(1)
	for _, r := range recs {
		require.Equal(t, next, r.base, "numbers follow the order of the log")
		require.Equal(t, acked[r.base], r.payload)
		next += kv.SeqNum(r.units)
	}
	require.NoError(t, l.Close())
}

// TestFirstFailureIsTheLast: after a failed sync no record is acknowledged, all waiting
// callers are woken, and the file is never synced again.
func TestFirstFailureIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk(t)
		var failing atomic.Bool
		var syncs atomic.Int64
		hold := make(chan struct{})
		o := testOptions(&syncFS{disk, func(f vfs.File) error {
			if !failing.Load() {
				return f.Sync()
			}
			if syncs.Add(1) > 1 {
				return nil // as on Linux: the failed pages count as clean
			}
			<-hold
			return syscall.EIO
		}})
		var told []error
		o.Events = &event.Listener{Failed: func(err error) { told = append(told, err) }}
		l, _, _ := mustOpen(t, o)
		put(t, l, "good", 1, synced)
		synctest.Wait() // nothing runs in the background
		failing.Store(true)

		var wakers []*counter
		add := func(level kv.Durability) {
			w := &counter{}
			_, _, err := appendTo(l, []byte("lost"), 1, level, w, nil)
			require.NoError(t, err)
			wakers = append(wakers, w)
		}
		add(synced)
		l.Flush()
		synctest.Wait() // the sync runs
		before := l.Synced()
		add(synced)
		l.Flush()
		add(memory)
		add(buffered)
		waited := make(chan error, 1)
		go func() { waited <- l.WaitSynced(background, before+1) }()
		synctest.Wait()
		close(hold)
		<-l.Failed()
		synctest.Wait()

		require.ErrorIs(t, l.Err(), syscall.EIO)
		require.ErrorIs(t, l.Err(), kv.ErrFailed)
		require.ErrorIs(t, <-waited, kv.ErrFailed)
		for i, w := range wakers {
			assert.True(t, w.woken(), "waker %d sleeps for ever", i)
		}
		assert.Equal(t, before, l.Synced(), "acknowledged after a failed sync")
		_, _, err := appendTo(l, []byte("x"), 1, synced, &counter{}, nil)
		require.ErrorIs(t, err, kv.ErrFailed)
		require.ErrorIs(t, l.WaitSynced(background, before+1), kv.ErrFailed)
		l.Flush()
		time.Sleep(time.Minute)
		require.ErrorIs(t, l.Close(), syscall.EIO)
		assert.EqualValues(t, 1, syncs.Load(), "a file was synced after its sync had failed")
		require.Len(t, told, 1)
	})
}

// TestPreparationMayFail: without zeros the log continues with small segments. A full
// disk is not reported here but by the log's reservations.
func TestPreparationMayFail(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) {
			fsys := faultfs.Wrap(newDisk(t), nil)
			o := testOptions(fsys)
			failed := make(chan error, 100)
			o.Events = &event.Listener{BackgroundError: func(err error) { failed <- err }}
			l, _, _ := mustOpen(t, o)
			fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if op.Kind == faultfs.Write && op.Len > 2000 {
					return faultfs.Fault{Err: cause}
				}
				return faultfs.Fault{}
			}))
			for range 30 {
				put(t, l, string(make([]byte, 500)), 1, synced)
			}
			require.Greater(t, l.Stats().Segments, 2)
			require.NoError(t, l.Close())
			if cause == syscall.EIO {
				require.ErrorIs(t, <-failed, syscall.EIO)
			}
			for len(failed) > 0 {
				require.NotErrorIs(t, <-failed, syscall.ENOSPC)
			}
		})
	}
}

func TestIdleMark(t *testing.T) {
	for _, level := range []kv.Durability{synced, buffered, memory} {
		t.Run(level.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newDisk(t)
				o := testOptions(disk)
				l, _, _ := mustOpen(t, o)
				put(t, l, "a", 1, level)
				time.Sleep(o.idleMark + DefaultIdleMark/2)
				put(t, l, "b", 1, level)
				require.Zero(t, marks(t, disk), "not idle yet")
				time.Sleep(DefaultIdleMark + DefaultIdleMark/10)
				synctest.Wait()
				require.Equal(t, 1, marks(t, disk))
				require.Equal(t, l.Written(), l.Synced())
				steps := disk.Steps()
				time.Sleep(time.Hour)
				require.Equal(t, steps, disk.Steps(), "an idle log does not use the disk")

				// From here on damage to b is not a torn tail.
				files := contents(t, disk)
				require.NoError(t, l.Close())
				d := damaged{files, []rec{{1, 1, "a"}, {2, 1, "b"}}, 2}
				for off := 64; off < 300; off++ {
					d.verify(t, d.spoil(1, func(b []byte) []byte {
						b[off] ^= 0x10
						return b
					}), "byte flipped before the mark")
				}
			})
		})
	}
}

func marks(t testing.TB, fsys vfs.FS) (n int) {
	nums, err := listSegments(fsys, testDir)
	require.NoError(t, err)
	for _, num := range nums {
		_, err := Dump(fsys, segmentName(testDir, num), func(f FrameInfo) error {
			if f.Kind == FrameMark {
				n++
			}
			return nil
		})
		require.NoError(t, err)
	}
	return n
}

func TestWaitSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := testOptions(&syncFS{newDisk(t), g.sync})
		o.idleMark = time.Hour
		l, _, _ := mustOpen(t, o)
		w := &counter{}
		_, pos, err := appendTo(l, []byte("a"), 1, memory, w, nil)
		require.NoError(t, err)
		require.NoError(t, l.WaitSynced(background, pos), "WaitSynced flushes too")
		require.Equal(t, pos, l.Synced())
		syncs := l.Stats().Syncs
		require.NoError(t, l.WaitSynced(background, pos))
		require.Equal(t, syncs, l.Stats().Syncs)

		g.close()
		_, pos, err = appendTo(l, []byte("b"), 1, buffered, w, nil)
		require.NoError(t, err)
		gaveUp := errors.New("gave up")
		ctx, cancel := context.WithCancelCause(background)
		cancel(gaveUp)
		require.ErrorIs(t, l.WaitSynced(ctx, pos), gaveUp)
		require.ErrorIs(t, l.WaitSynced(background, pos+1), kv.ErrInvalidArgument)
		done := make(chan error, 1)
		go func() { done <- l.WaitSynced(background, pos) }()
		synctest.Wait()
		require.Empty(t, done)
		g.open()
		require.NoError(t, <-done)
		require.NoError(t, l.Close())
	})
}

func TestAppendRefuses(t *testing.T) {
	l, _, _ := mustOpen(t, testOptions(newDisk(t)))
	w := &counter{}
	_, _, err := appendTo(l, nil, 0, synced, w, nil)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, _, err = appendTo(l, make([]byte, maxRecordBytes+1), 1, synced, w, nil)
	require.ErrorIs(t, err, kv.ErrTooLarge)

	_, _, err = appendTo(l, nil, recoveryGap-10, memory, w, nil)
	require.NoError(t, err)
	_, _, err = appendTo(l, nil, 11, memory, w, nil)
	require.ErrorIs(t, err, kv.ErrOverloaded, "recovery could not tell which numbers were given out")
	require.NoError(t, l.WaitSynced(background, 1))
	put(t, l, "", 11, synced)

	require.NoError(t, l.Close())
	_, _, err = appendTo(l, nil, 1, synced, w, nil)
	require.ErrorIs(t, err, kv.ErrClosed)
	require.ErrorIs(t, l.WaitSynced(background, l.Synced()+1), kv.ErrInvalidArgument)
	l.Flush()
}

func TestNumbersAreUsedUp(t *testing.T) {
	o := testOptions(newDisk(t))
	o.MinSeq = kv.MaxSeqNum - 3
	l, _, r := mustOpen(t, o)
	require.Equal(t, kv.MaxSeqNum-2, r.NextSeq)
	put(t, l, "a", 2, synced)
	_, _, err := appendTo(l, nil, 1, synced, &counter{}, nil)
	require.ErrorIs(t, err, kv.ErrReadOnly)
	require.NoError(t, l.Close())
}

func TestCloseWhileOthersWrite(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	l, _, _ := mustOpen(t, o)
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[kv.SeqNum]bool{}
	started := make(chan struct{}, 1000)
	for range 16 {
		wg.Go(func() {
			for {
				w := make(signal, 1)
				base, pos, err := appendTo(l, make([]byte, 100), 1, synced, w, nil)
				if err != nil {
					assert.ErrorIs(t, err, kv.ErrClosed)
					return
				}
				l.Flush()
				for l.Synced() < pos {
					<-w
				}
				mu.Lock()
				acked[base] = true
				mu.Unlock()
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	wg.Go(func() {
		for l.Reclaim(50) == nil && l.Err() == nil {
			if _, _, err := appendTo(l, nil, 1, memory, &counter{}, nil); err != nil {
				return
			}
		}
	})
	for range 100 {
		<-started
	}
	require.NoError(t, l.Close())
	wg.Wait()
	o.Fresh = false
	l, recs, _ := mustOpen(t, o)
	have := map[kv.SeqNum]bool{}
	for _, r := range recs {
		have[r.base] = true
	}
	for base := range acked {
		require.True(t, have[base] || base <= 50, "%d was acknowledged and is gone", base)
	}
	require.NoError(t, l.Close())
}

// TestFlushWaitsForRoom: Flush waits while too much is queued after a write that hangs,
// so that the queue is bounded.
func TestFlushWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := faultfs.Wrap(newDisk(t), nil)
		o := testOptions(fsys)
		o.SegmentBytes = 256 << 20
		l, _, _ := mustOpen(t, o)
		release := make(chan struct{})
		fsys.SetInjector(faultfs.At(0, false, faultfs.Fault{Delay: func() { <-release }}, faultfs.OnKind(faultfs.Write)))
		add := func(n int) {
			_, _, err := appendTo(l, make([]byte, n), 1, memory, &counter{}, nil)
			require.NoError(t, err)
			l.Flush()
		}
		go add(10)
		synctest.Wait()
		add(maxQueuedBytes / 2) // returns: there is room
		var returned atomic.Bool
		go func() {
			add(maxQueuedBytes / 2)
			returned.Store(true)
		}()
		synctest.Wait()
		require.False(t, returned.Load())
		close(release)
		synctest.Wait()
		require.True(t, returned.Load())
		require.NoError(t, l.Close())
	})
}

// TestLeaderIsRelieved: a caller of Flush writes some frames of other callers, or some
// bytes of them, then a goroutine of the log takes over.
func TestLeaderIsRelieved(t *testing.T) {
	for name, c := range map[string]struct{ bytes, frames int }{
		"after some frames": {100, leadFrames},
		"after some bytes":  {fullFrameBytes, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys := faultfs.Wrap(newDisk(t), nil)
				o := testOptions(fsys)
				o.SegmentBytes = 256 << 20
				l, _, _ := mustOpen(t, o)
				step := make(chan struct{})
				fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
					if op.Kind == faultfs.Write && op.Len >= c.bytes {
						<-step
					}
					return faultfs.Fault{}
				}))
				add := func() {
					_, _, err := appendTo(l, make([]byte, c.bytes), 1, memory, &counter{}, nil)
					require.NoError(t, err)
				}
				var returned atomic.Bool
				add()
				go func() {
					l.Flush()
					returned.Store(true)
				}()
				for range c.frames {
					synctest.Wait() // a write waits for its step
					require.False(t, returned.Load())
					add() // a frame of its own, for the next write
					step <- struct{}{}
				}
				synctest.Wait()
				assert.True(t, returned.Load(), "it writes on")
				close(step)
				require.NoError(t, l.Close())
			})
		})
	}
}

// L4: frames left to the goroutine with the writing role are written when it gives the
// role up, even if they came too late for it to write them.
func TestWhatIsLeftToAWriterIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(newDisk(t))
		o.idleMark = time.Hour
		l, _, _ := mustOpen(t, o)
		l.mu.Lock()
		require.True(t, l.takeRoleLocked())
		l.mu.Unlock()
		w := make(signal, 1)
		_, pos, err := appendTo(l, []byte("a"), 1, buffered, w, nil)
		require.NoError(t, err)
		l.Flush() // leaves it to the goroutine that is writing
		synctest.Wait()
		require.Less(t, l.Written(), pos)

		l.mu.Lock()
		l.releaseLocked()
		l.mu.Unlock()
		synctest.Wait()
		require.Equal(t, pos, l.Written())
		require.Len(t, w, 1)
		require.NoError(t, l.Close())
	})
}

// The log syncs from time to time although no record asks for it.
func TestMuchThatNobodyWaitsForIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(newDisk(t))
		o.idleMark, o.SegmentBytes = time.Hour, 4*maxUnsyncedBytes
		l, _, _ := mustOpen(t, o)
		payload := make([]byte, 1<<20)
		for range maxUnsyncedBytes/len(payload) - 1 {
			_, _, err := appendTo(l, payload, 1, buffered, &counter{}, nil)
			require.NoError(t, err)
			l.Flush()
		}
		synctest.Wait()
		require.Less(t, l.Synced(), l.Written())
		_, pos, err := appendTo(l, payload, 1, buffered, &counter{}, nil)
		require.NoError(t, err)
		l.Flush()
		synctest.Wait()
		require.Equal(t, pos, l.Synced())
		require.NoError(t, l.Close())
	})
}
