package engine

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// testTime is a source of time that a test moves.
type testTime struct {
	mu   sync.Mutex
	wall time.Time
	run  time.Duration
	boot byte // of the boot clock's id; 0: there is none
	up   time.Duration
}

func newTestTime() *testTime {
	return &testTime{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), run: time.Hour, boot: 1, up: time.Minute}
}

func (tt *testTime) source() timeSource {
	boot := bootClock{id: [16]byte{tt.boot}, now: func() time.Duration {
		tt.mu.Lock()
		defer tt.mu.Unlock()
		return tt.up
	}}
	if tt.boot == 0 {
		boot = bootClock{}
	}
	return timeSource{
		boot: boot,
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
	tt.up += d
	tt.wall = tt.wall.Add(d)
}

func (tt *testTime) jump(d time.Duration) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.wall = tt.wall.Add(d)
}

// reboot starts the machine anew.
func (tt *testTime) reboot() {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.boot++
	tt.up = 0
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
			switch rapid.IntRange(0, 10).Draw(t, "step") {
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
			case 10: // a crash of the machine
				broken = false
				mem = mem.CrashImage(vfs.DropAll, nil)
				restarted = true
				tt.reboot()
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
		require.NoError(t, c.keep(), "the maintenance loop sees the jump")
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

// Until there is a bound the clock runs free. If it passes its first bound while that is
// written, use writes another one before it returns.
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
	newer[8] = 3
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

// The maintenance loop renews the line, so the clock of an idle store is right.
func TestIdleClockKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, small(disk))
		require.NoError(t, e.clock.use())
		idle := 4 * time.Hour
		if testsize.Reduced() {
			idle = time.Hour
		}
		time.Sleep(idle)
		require.EqualValues(t, time.Now().UnixMilli(), e.Now())
		require.Equal(t, e.Now(), e.Stats().Clock)
		require.NoError(t, e.Close())
		stood := e.Now()
		time.Sleep(time.Hour)
		require.Equal(t, stood, e.Now(), "it stops with the store")

		o := small(disk)
		o.time = timeSource{wall: func() time.Time { return time.UnixMilli(1000) }, monotonic: systemTime(bootClock{}).monotonic}
		e = open(t, o)
		require.GreaterOrEqual(t, e.Now(), stood)
	})
}

// For each of many concurrent readers the clock only goes forward; -race watches.
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
	c, err := openClock(disk, "data", 7, systemTime(bootClock{}))
	require.NoError(b, err)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Now()
		}
	})
}

// C4: after kill -9, and after a power cut that the boot clock survives, the clock says
// what a clock without interruption says, whatever the wall clock did and however long
// the store was closed.
func TestAKilledClockGoesOnAsIfItHadNotBeen(t *testing.T) {
	jumps := []time.Duration{0, -10 * year, -time.Hour, -time.Second, time.Millisecond, 3 * time.Second, time.Hour, 10 * year}
	rapid.Check(t, func(t *rapid.T) {
		tt, mem := newTestTime(), newClockDir(t)
		c, err := openClock(mem, "data", 7, tt.source())
		require.NoError(t, err)
		require.NoError(t, c.use())
		for range rapid.IntRange(1, 20).Draw(t, "lives") {
			for range rapid.IntRange(0, 30).Draw(t, "seconds") {
				if rapid.IntRange(0, 9).Draw(t, "event") == 0 {
					tt.jump(rapid.SampledFrom(jumps).Draw(t, "jump"))
					require.NoError(t, c.keep())
				}
				tt.pass(time.Duration(rapid.IntRange(1, 1_000_000).Draw(t, "microseconds")) * time.Microsecond)
				c.Now()
				require.NoError(t, c.keep())
			}
			served := c.Now()
			mem = mem.CrashImage(vfs.DropAll, nil)
			down := time.Duration(rapid.IntRange(0, 5_000).Draw(t, "milliseconds down")) * time.Millisecond
			tt.pass(down)
			lived := c.lines()[0].free(tt.source().monotonic())
			if rapid.Bool().Draw(t, "jumps while down") {
				tt.jump(rapid.SampledFrom(jumps).Draw(t, "jump"))
			}
			c, err = openClock(mem, "data", 7, tt.source())
			require.NoError(t, err)
			require.GreaterOrEqual(t, c.Now(), served, "C1")
			require.InDelta(t, unixMilli(lived), c.Now(), 1, "C4: down for %v", down)
		}
	})
}

func (c *clock) lines() []line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.lines)
}

// The clock begins at the bound in a new boot, if the boot clock was set back, as in a
// virtual machine, and if there is no boot clock.
func TestWithoutItsBootClockTheClockBeginsAtTheBound(t *testing.T) {
	for name, change := range map[string]func(*testTime){
		"new boot":      (*testTime).reboot,
		"set back":      func(tt *testTime) { tt.up -= time.Second },
		"no boot clock": func(tt *testTime) { tt.boot = 0 },
	} {
		tt, mem := newTestTime(), newClockDir(t)
		c, err := openClock(mem, "data", 7, tt.source())
		require.NoError(t, err)
		require.NoError(t, c.use())
		bound := durableBound(t, mem)
		require.Equal(t, c.Now()+uint64(clockAhead/time.Millisecond), bound)
		tt.jump(-time.Hour)
		change(tt)
		c, err = openClock(mem, "data", 7, tt.source())
		require.NoError(t, err)
		require.Equal(t, bound, c.Now(), name)
	}
	tt, mem := newTestTime(), newClockDir(t)
	tt.boot = 0
	c, err := openClock(mem, "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	tt.boot = 1
	tt.jump(-time.Hour)
	now := c.Now()
	c, err = openClock(mem, "data", 7, tt.source())
	require.NoError(t, err)
	require.Equal(t, now+uint64(clockAhead/time.Millisecond), c.Now(), "saved without one")
}

func TestClockOfFormatOneIsRead(t *testing.T) {
	golden, err := os.ReadFile("../descriptor/testdata/v1/CLOCK")
	require.NoError(t, err)
	old, err := descriptor.DecodeClock("CLOCK", golden)
	require.NoError(t, err)
	tt, mem := newTestTime(), newClockDir(t)
	require.NoError(t, vfs.WriteAtomic(mem, "data/CLOCK", golden))
	tt.jump(-30 * year)
	c, err := openClock(mem, "data", old.StoreID, tt.source())
	require.NoError(t, err)
	require.Equal(t, old.Bound, c.Now())
}

// While a line is written, a crash may leave it or the one before: the clock passes
// neither. The wall clock has jumped back, so that the new one is the slower.
func TestAClockPassesNoLineThatMayBeDurable(t *testing.T) {
	tt, mem := newTestTime(), newClockDir(t)
	disk := faultfs.Wrap(mem, nil)
	c, err := openClock(disk, "data", 7, tt.source())
	require.NoError(t, err)
	require.NoError(t, c.use())
	tt.jump(time.Hour)
	require.NoError(t, c.keep())
	tt.pass(time.Second)
	before := c.Now()
	tt.jump(-2 * time.Hour)
	isSync, isDir := faultfs.OnKind(faultfs.SyncDir), faultfs.OnName("data")
	during := uint64(0)
	disk.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if !isSync(op) || !isDir(op) || during != 0 {
			return faultfs.Fault{}
		}
		tt.pass(time.Second) // the new file is there, but this process does not know
		during = c.Now()
		image := mem.KillImage()
		killed, err := openClock(image, "data", 7, tt.source())
		require.NoError(t, err)
		require.GreaterOrEqual(t, killed.Now(), during, "C1")
		return faultfs.Fault{Err: errors.New("broken")}
	}))
	require.Error(t, c.keep())
	require.Equal(t, before+500, during, "the slower of both")
	tt.pass(time.Second)
	require.Equal(t, before+1000, c.Now(), "after the failure, too")
	require.NoError(t, c.keep(), "tried again")
	require.Len(t, c.lines(), 1)
	require.Equal(t, before+1000, c.Now())
}

func TestBootClockOfThisMachine(t *testing.T) {
	none, err := systemBoot(vfs.NewMem())
	require.NoError(t, err)
	require.Nil(t, none.now, "a store in memory ends with its process")
	if runtime.GOOS != "linux" {
		t.Skip("only Linux names its boots")
	}
	c, err := systemBoot(vfs.OS)
	require.NoError(t, err)
	require.NotZero(t, c.id)
	first := c.now()
	require.Positive(t, first)
	require.GreaterOrEqual(t, c.now(), first)
	again, err := systemBoot(vfs.OS)
	require.NoError(t, err)
	require.Equal(t, c.id, again.id)
}
