package engine

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// TestRestOnAFullDisk opens a store whose recovery cannot write, so that its log is
// suspended, and leaves it alone for longer than it takes to be at rest. It goes on to
// answer reads, and takes writes once there is room.
func TestRestOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		e, err := Open("data", fullOptions(mem))
		require.NoError(t, err)
		l := &fullLife{t: t, e: e, have: map[string]string{}}
		l.puts(0, 100)
		image := mem.KillImage()
		_ = e.Close() // of a store that no longer counts

		h := newHog(image, 8<<20, 0)
		h.greedy.Store(true)
		l.e, err = Open("data", fullOptions(image))
		require.NoError(t, err)
		require.Error(t, l.e.log.Suspended(), "the test needs a recovery that could not write")
		time.Sleep(3 * restAfter)
		require.True(t, l.e.atRest.Load())
		l.check()
		h.leave()
		l.writable()
		l.puts(100, 50)
		time.Sleep(3 * restAfter)
		l.check()
		require.NoError(t, l.e.Close())
	})
}

// killedLife is a life that ended with a kill.
type killedLife struct {
	disk *vfs.Mem
	have map[string]string
}

// liveUntilKilled does what a life of blinkAt begins with, and is killed.
func liveUntilKilled(t *testing.T) (k killedLife) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		newHog(mem, 8<<20, 0)
		e, err := Open("data", fullOptions(mem))
		require.NoError(t, err)
		l := &fullLife{t: t, e: e, have: map[string]string{}}
		l.puts(0, 100)
		k = killedLife{mem.KillImage(), l.have}
		_ = e.Close() // of a store that no longer counts
	})
	return k
}

// blinkAt lives on a disk that another process fills before operation at and that is
// as it was after some operations more, be it during a life or, if one is given that was killed,
// during the opening after that. It reports whether the disk was filled at all.
func blinkAt(t *testing.T, at, length int64, killed *killedLife) (filled bool) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l := &fullLife{t: t, have: map[string]string{}}
		if killed != nil {
			mem, l.have = killed.disk.KillImage(), maps.Clone(killed.have)
		}
		h := newHog(mem, 8<<20, at)
		h.length = length
		var err error
		l.e, err = Open("data", fullOptions(mem))
		switch {
		case killed != nil:
			require.NoError(t, err, "a store on a full disk opens")
		case err != nil:
			filled = true
			return // a store that is being made needs space
		default:
			l.puts(0, 100)
		}
		l.check()
		l.puts(100, 30)
		l.dels(20, 10)
		filled = h.steps.Load() >= at
		l.check()
		time.Sleep(5 * time.Second)
		h.leave()
		begin := time.Now()
		l.writable()
		// By the fake clock: some ticks of the maintenance loop.
		require.Less(t, time.Since(begin), 10*housekeepingEvery, "writes were refused long after there was room")
		l.puts(150, 100)
		l.check()
		require.NoError(t, l.e.Close())
	})
	return filled
}

// TestADiskThatIsFullForAMoment has the disk full for some operations only, so short that
// no look at the disk sees it. Writes go on by themselves.
func TestADiskThatIsFullForAMoment(t *testing.T) {
	for _, kill := range []bool{false, true} {
		for _, length := range []int64{1, 4} {
			t.Run(fmt.Sprintf("operations=%d, kill=%v", length, kill), func(t *testing.T) {
				t.Parallel()
				runs, step := 0, fillStep(31)
				var killed *killedLife
				if kill { // a life after it has fewer operations, the fewer the busier the machine
					step = fillStep(5)
					life := liveUntilKilled(t)
					killed = &life
				}
				for at := int64(1); blinkAt(t, at, length, killed); at += step {
					runs++
				}
				t.Logf("%d runs, each with a disk that is full at another operation", runs)
				require.Greater(t, runs, minFills())
			})
		}
	}
}

// stopAt lives until another process fills the disk before operation at, is closed and
// opened on the full disk, and has its space back. It reports whether the disk was filled
// at all.
func stopAt(t *testing.T, at int64) (filled bool) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		e, err := Open("data", fullOptions(mem))
		require.NoError(t, err)
		l := &fullLife{t: t, e: e, have: map[string]string{}}
		h := newHog(mem, 8<<20, at)
		var b kv.WriteBatch
		b.Add(kv.Op{Kind: kv.KindPut, Key: []byte("lease"), Value: []byte("v"), Expiry: e.Now() + uint64(time.Hour.Milliseconds())})
		_, err = e.Apply(t.Context(), &b, synced)
		leased := l.may(err)
		l.puts(0, 80)
		time.Sleep(clockAhead) // the maintenance loop saves the clock
		filled = h.greedy.Load()
		require.NoError(t, l.e.Close(), "a store on a full disk stops in order")
		l.e, err = Open("data", fullOptions(mem))
		require.NoError(t, err, "a store on a full disk opens")
		l.check()
		h.leave()
		l.writable()
		if leased {
			requireValue(t, l.e, "lease", "v")
		}
		l.check()
		require.NoError(t, l.e.Close())
	})
	return filled
}

// TestAFullDiskIsNoReasonToFailAStop fills the disk before an operation of a life, and
// then stops the store in order and opens it again.
func TestAFullDiskIsNoReasonToFailAStop(t *testing.T) {
	t.Parallel()
	runs := 0
	for at := int64(1); stopAt(t, at); at += fillStep(23) {
		runs++
	}
	t.Logf("%d runs, each with a disk that fills at another operation", runs)
	require.Greater(t, runs, minFills())
}
