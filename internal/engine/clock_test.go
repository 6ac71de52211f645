package engine

import (
	"errors"
	"io/fs"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// testTime is a source of time that a test moves.
type testTime struct {
	mu   sync.Mutex
	wall time.Time
	run  time.Duration
}

func newTestTime() *testTime {
	return &testTime{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), run: time.Hour}
}

func (tt *testTime) source() timeSource {
	return timeSource{
		wall: func() time.Time {
			tt.mu.Lock()
			defer tt.mu.Unlock()
			return tt.wall
		},
		monotonic: func() time.Duration {
			tt.mu.Lock()
			defer tt.mu.Unlock()
			return tt.run
		},
	}
}

// pass lets time go on; jump sets the wall clock.
func (tt *testTime) pass(d time.Duration) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.run += d
	tt.wall = tt.wall.Add(d)
}

func (tt *testTime) jump(d time.Duration) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.wall = tt.wall.Add(d)
}

func (tt *testTime) ms() uint64 {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return unixMilli(tt.wall)
}

const year = 365 * 24 * time.Hour

func newClockDir(t require.TestingT) *vfs.Mem {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data"))
	require.NoError(t, disk.SyncDir("."))
	return disk
}

// durableBound returns what CLOCK would say after a power cut, 0 if nothing.
func durableBound(t require.TestingT, disk *vfs.Mem) uint64 {
	c, err := descriptor.ReadClock(disk.CrashImage(vfs.DropAll, nil), "data", 7)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	return c.Bound
}

// C1 to C3, whatever the wall clock does, over restarts and crashes, and with a
// disk that fails now and then.
func TestClockKeepsItsPromises(t *testing.T) {
	jumps := []time.Duration{-10 * year, -time.Hour, -time.Second, time.Millisecond, time.Hour, 10 * year}
	steps := []time.Duration{0, time.Microsecond, 700 * time.Microsecond, time.Millisecond, time.Second, 7 * time.Second, time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		tt, mem := newTestTime(), newClockDir(t)
		broken := false
		wrap := func() vfs.FS {
			return faultfs.Wrap(mem, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if broken && op.Kind == faultfs.Sync {
					return faultfs.Fault{Err: errors.New("broken")}
				}
				return faultfs.Fault{}
			}))
		}
		c, err := openClock(wrap(), "data", 7, tt.source())
		require.NoError(t, err)
		last := c.Now()
		used := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			elapsed := time.Duration(0)
			restarted := false
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				elapsed = rapid.SampledFrom(steps).Draw(t, "time")
				tt.pass(elapsed)
			case 4:
				tt.jump(rapid.SampledFrom(jumps).Draw(t, "jump"))
			case 5:
				if err := c.use(); err == nil {
					used = true
				} else if !broken {
					t.Fatalf("use: %v", err)
				}
			case 6:
				broken = rapid.Bool().Draw(t, "broken")
			case 7: // a clean restart
				broken = false
				require.NoError(t, c.close())
				if used {
					require.Equal(t, c.Now(), durableBound(t, mem), "a clean end saves the time as it is")
				}
				restarted = true
			case 8: // a crash
				broken = false
				mem = mem.CrashImage(vfs.DropAll, nil)
				restarted = true
			case 9:
				if err := c.keep(); err != nil && !broken {
					t.Fatalf("keep: %v", err)
				}
			}
			if restarted {
				c, err = openClock(wrap(), "data", 7, tt.source())
				require.NoError(t, err)
			}
			now := c.Now()
			if now < last && (used || !restarted) {
				t.Fatalf("C1: the clock went from %d back to %d", last, now)
			}
			if !restarted && now > last+uint64(2*elapsed/time.Millisecond)+2 {
				t.Fatalf("C2: the clock went from %d to %d in %v", last, now, elapsed)
			}
			if used {
				if bound := durableBound(t, mem); now > bound {
					t.Fatalf("C3: the clock says %d, durable is %d", now, bound)
				}
			}
			last = now
		}
	})
}

func TestClockIsTheWallClockWhileThatBehaves(t *testing.T) {
	tt := newTestTime()
	c, err := openClock(newClockDir(t), "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	for range 10_000 {
		tt.pass(1234 * time.Microsecond)
		require.NoError(t, c.keep())
		require.Equal(t, tt.ms(), c.Now())
	}
}

func TestClockFollowsAJumpGradually(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 10 * year, -10 * year} {
		tt := newTestTime()
		c, err := openClock(newClockDir(t), "data", 7, tt.source())
		require.NoError(t, err)
		require.NoError(t, c.use())
		begin := c.Now()
		tt.jump(jump)
		require.InDelta(t, begin, c.Now(), 0, "no time has passed")
		for range 60 {
			tt.pass(time.Second)
			require.NoError(t, c.keep())
		}
		want := uint64(120_000)
		if jump < 0 {
			want = 30_000
		}
		require.InDelta(t, begin+want, c.Now(), 2, "a minute after a jump of %v", jump)
	}
	tt := newTestTime()
	c, err := openClock(newClockDir(t), "data", 7, tt.source())
	require.NoError(t, err)
	tt.jump(time.Minute)
	for range 60 {
		tt.pass(time.Second)
		c.Now()
	}
	require.Equal(t, tt.ms(), c.Now(), "caught up")
}

func TestClockStandsStillWhileTheDiskDoes(t *testing.T) {
	tt, broken := newTestTime(), false
	disk := faultfs.Wrap(newClockDir(t), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if broken {
			return faultfs.Fault{Err: errors.New("broken")}
		}
		return faultfs.Fault{}
	}))
	c, err := openClock(disk, "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	begin := c.Now()
	broken = true
	for range 60 {
		tt.pass(time.Second)
		if c.keep() != nil {
			continue
		}
		require.LessOrEqual(t, c.Now(), begin+uint64(clockAhead/2/time.Millisecond), "while there is enough left")
	}
	require.Equal(t, begin+uint64(clockAhead/time.Millisecond), c.Now())
	broken = false
	require.NoError(t, c.keep())
	require.Equal(t, begin+uint64(clockAhead/time.Millisecond), c.Now(), "what was missed does not come at once")
	tt.pass(time.Second)
	require.Equal(t, begin+uint64((clockAhead+2*time.Second)/time.Millisecond), c.Now())
}

// Until there is a bound the clock runs free. If it passes its first bound while
// that is written, another is written before anybody may count on it.
func TestFirstBoundIsAheadOfTheClock(t *testing.T) {
	tt, mem := newTestTime(), newClockDir(t)
	delays := 2
	disk := faultfs.Wrap(mem, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Sync && delays > 0 {
			delays--
			tt.pass(time.Minute)
		}
		return faultfs.Fault{}
	}))
	c, err := openClock(disk, "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	assert.Zero(t, delays)
	assert.Equal(t, tt.ms(), c.Now())
	assert.Greater(t, durableBound(t, mem), c.Now())
}

func TestClockIsNotWrittenAfterItsEnd(t *testing.T) {
	tt, mem := newTestTime(), newClockDir(t)
	c, err := openClock(mem, "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.close())
	require.ErrorIs(t, c.use(), kv.ErrClosed)
	require.Zero(t, durableBound(t, mem), "a clock that was never used leaves no file")
}

func TestFirstUseThatWasCutShortLeavesNothing(t *testing.T) {
	mem := newClockDir(t)
	disk := faultfs.Wrap(mem, nil)
	c, err := openClock(disk, "data", 7, newTestTime().source())
	require.NoError(t, err)
	var image *vfs.Mem
	mem.SetHook(func(s vfs.Step) { image = mem.KillImage() }) // before the last step
	require.NoError(t, c.use())
	mem.SetHook(nil)
	_, err = openClock(image, "data", 7, newTestTime().source())
	require.NoError(t, err)
	names, err := image.List("data")
	require.NoError(t, err)
	assert.NotContains(t, names, "CLOCK.tmp")
}

func TestDamagedClockIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	e := open(t, small(disk))
	require.NoError(t, e.clock.use())
	id := e.Descriptor().StoreID
	require.NoError(t, e.Close())
	whole := descriptor.Clock{StoreID: id, Bound: 1}

	flipped := whole.Encode()
	flipped[20] ^= 1
	newer := whole.Encode()
	newer[8] = 2
	foreign := descriptor.Clock{StoreID: id + 1, Bound: 1}
	for what, c := range map[string]struct {
		content []byte
		want    error
	}{
		"flip": {flipped, kv.ErrCorrupt}, "cut": {flipped[:9], kv.ErrCorrupt}, "empty": {nil, kv.ErrCorrupt},
		"of another store": {foreign.Encode(), kv.ErrCorrupt}, "newer": {newer, kv.ErrUnsupportedVersion},
	} {
		require.NoError(t, vfs.WriteAtomic(disk, "data/CLOCK", c.content))
		_, err := Open("data", small(disk))
		require.ErrorIs(t, err, c.want, what)
		require.ErrorContains(t, err, "data/CLOCK", what)
	}
	require.NoError(t, disk.Remove("data/CLOCK"))
	require.NoError(t, open(t, small(disk)).Close(), "as the error advises")
}

func TestStoreWithoutExpiryHasNoClockFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, small(disk))
		put(t, e, "a", "1", synced)
		contents(t, e)
		s, err := e.BeginSnapshot(t.Context(), time.Minute)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		e.Now()
		e.ReleaseSnapshot(s.ID)
		require.NoError(t, e.Close())
		_, err = disk.Stat("data/CLOCK")
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

// The keeper moves the bound on, so the clock of an idle store is right.
func TestIdleClockKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, small(disk))
		require.NoError(t, e.clock.use())
		time.Sleep(24 * time.Hour)
		require.EqualValues(t, time.Now().UnixMilli(), e.Now())
		require.Equal(t, e.Now(), e.Stats().Clock)
		require.NoError(t, e.Close())
		stood := e.Now()
		time.Sleep(time.Hour)
		require.Equal(t, stood, e.Now(), "it stops with the store")

		o := small(disk)
		o.time = timeSource{wall: func() time.Time { return time.UnixMilli(1000) }, monotonic: systemTime().monotonic}
		e = open(t, o)
		require.GreaterOrEqual(t, e.Now(), stood)
	})
}

// Many ask at once; -race watches, and each sees the clock go forward only.
func TestConcurrentReadersSeeTheClockGoForward(t *testing.T) {
	tt := newTestTime()
	c, err := openClock(newClockDir(t), "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			last := uint64(0)
			for range 3000 {
				now := c.Now()
				if now < last {
					t.Errorf("%d after %d", now, last)
					return
				}
				last = now
			}
		})
	}
	for i := range 2000 {
		tt.pass(300 * time.Microsecond)
		tt.jump(time.Duration(i%7-3) * time.Second)
		require.NoError(t, c.keep())
	}
	all.Wait()
}

func BenchmarkClock(b *testing.B) {
	disk := vfs.NewMem()
	require.NoError(b, disk.MkdirAll("data"))
	c, err := openClock(disk, "data", 7, systemTime())
	require.NoError(b, err)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Now()
		}
	})
}
