package wal

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// slowDisk opens a log whose syncs take that long, in the time of a synctest bubble.
func slowDisk(t *testing.T, sync *atomic.Int64) *Log {
	t.Helper()
	o := testOptions(&syncFS{newDisk(t), func(f vfs.File) error {
		time.Sleep(time.Duration(sync.Load()))
		return f.Sync()
	}})
	o.SegmentBytes = 1 << 20
	o.idleMark = 24 * time.Hour
	l, _, _ := mustOpen(t, o)
	return l
}

// putSynced appends a record and returns when its sync has woken it.
func putSynced(t *testing.T, l *Log) {
	w := make(signal, 1)
	_, pos, err := appendTo(l, []byte("payload"), 1, synced, w, nil)
	if !assert.NoError(t, err) {
		return
	}
	awaitWaker(l, pos, synced, w)
}

// TestSyncsServeAllWritersThatComeBack: writers that come back sooner than a sync takes
// are served by one sync each time, not by two in turns.
func TestSyncsServeAllWritersThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers = 16
		var took atomic.Int64
		l := slowDisk(t, &took)
		took.Store(int64(10 * time.Millisecond))
		end := time.Now().Add(time.Second)
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for time.Now().Before(end) {
					putSynced(t, l)
					time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				}
			})
		}
		all.Wait()
		assert.Greater(t, l.Stats().RecordsPerSync(), 0.75*writers)
		require.NoError(t, l.Close())
	})
}

// TestTheLogDoesNotWaitLongForWriters: a record appended while the log waits for other
// writers is synced after as long as a sync takes, and at once if other writers often
// stayed away.
func TestTheLogDoesNotWaitLongForWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const sync = 10 * time.Millisecond
		var took atomic.Int64
		l := slowDisk(t, &took)
		took.Store(int64(sync))
		waited := 0
		for range 100 {
			w := make(signal, 1)
			for range 3 {
				_, _, err := appendTo(l, []byte("payload"), 1, synced, w, nil)
				require.NoError(t, err)
			}
			l.Flush()
			<-w // and two writers that never come back
			time.Sleep(time.Millisecond)
			begin := time.Now()
			putSynced(t, l)
			if elapsed := time.Since(begin); elapsed > sync {
				waited++
				require.LessOrEqual(t, elapsed, 2*sync)
			}
			time.Sleep(time.Minute)
		}
		assert.Greater(t, waited, 0)
		assert.Less(t, waited, 10)
		require.NoError(t, l.Close())
	})
}

func TestCloseEndsTheWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took atomic.Int64
		l := slowDisk(t, &took)
		took.Store(int64(time.Hour))
		w := &counter{}
		for range 3 {
			_, _, err := appendTo(l, []byte("payload"), 1, synced, w, nil)
			require.NoError(t, err)
		}
		l.Flush()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, w.woken())
		took.Store(0)
		begin := time.Now()
		require.NoError(t, l.Close())
		assert.Less(t, time.Since(begin), time.Second)
	})
}

func TestGatheringGoals(t *testing.T) {
	for _, c := range []struct {
		served, waiting uint64
		goal            uint64 // that the log waits for; 0: it does not wait
	}{
		{0, 0, 0},
		{0, 5, 0},
		{1, 0, 0}, // a lone writer
		{2, 0, 2},
		{1, 1, 2},
		{3, 1, 4},
		{8, 0, 7},
		{128, 128, 224},
		{1, 7, 0}, // enough of them have come back
		{16, 240, 0},
	} {
		g := gathering{asked: 1000 + c.waiting, synced: 1000, full: make(signal, 1)}
		assert.Equal(t, c.goal > 0, g.begin(c.served), "%+v", c)
		if c.goal > 0 {
			assert.Equal(t, 1000+c.goal, g.goal, "%+v", c)
		}
	}
}

// TestGatheringGivesUp: the less often writers come back, the less often the log waits
// for them.
func TestGatheringGivesUp(t *testing.T) {
	g := gathering{full: make(signal, 1)}
	tries := func(syncs int, comeBack bool) (tries int) {
		for range syncs {
			g.ask(2)
			g.synced = g.asked
			if !g.begin(2) {
				continue
			}
			tries++
			if comeBack {
				g.ask(1)
				require.Empty(t, g.full)
				g.ask(1)
				<-g.full
			}
			g.end()
		}
		return tries
	}
	assert.Equal(t, 100, tries(100, true))
	assert.Equal(t, 1+1+1, tries(1+2+1+6+1, false))
	assert.Equal(t, 58, tries(1000, false))
	assert.Equal(t, 0, tries(g.skip, true))
	assert.Equal(t, 100, tries(100, true), "the writers are back")
}
