package daemon

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// blocked is a disk whose chosen operations do not return until it is released.
type blocked struct {
	reached chan struct{} // one value: an operation has begun
	release chan struct{} // closed by the test
}

func newBlocked() *blocked {
	return &blocked{reached: make(chan struct{}, 1), release: make(chan struct{})}
}

// on returns an Injector that blocks the operations of which all predicates hold.
func (b *blocked) on(when ...faultfs.Predicate) faultfs.Injector {
	return faultfs.At(0, true, faultfs.Fault{Delay: func() {
		select {
		case b.reached <- struct{}{}:
		default:
		}
		<-b.release
	}}, when...)
}

// TestABlockedWriteHoldsUpWritesAlone is a frozen file system: writes do not return, in
// the log and elsewhere. Health, a garbage collection and reads of what is in memory go
// on, and after the thaw so do writes. scripts/freeze.sh does it with a real one.
func TestABlockedWriteHoldsUpWritesAlone(t *testing.T) {
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
	b := newBlocked()
	fsys.SetInjector(b.on(faultfs.OnKind(faultfs.Create, faultfs.Remove, faultfs.Rename, faultfs.Write, faultfs.Truncate, faultfs.Sync, faultfs.SyncDir)))
	written := make(chan error, 1)
	go func() { written <- r.client.Put(t.Context(), []byte("b"), []byte("2"), kvd.Durable(kvd.Buffered)) }()
	<-b.reached
	runtime.GC()
	for _, page := range []string{"/livez", "/metrics", "/status.txt"} {
		code, _ := r.page(page)
		assert.Equal(t, http.StatusOK, code, page)
	}
	r.page("/readyz")
	value, err := r.client.Get(t.Context(), []byte("a"))
	require.NoError(t, err)
	assert.Equal(t, "1", string(value))
	assert.Empty(t, written, "it is not in the log yet")
	close(b.release)
	require.NoError(t, <-written)
	require.NoError(t, r.end())
}

// stuckDisks are operations that hang, each with what brings it about in a service that
// flushes after every write.
var stuckDisks = []struct {
	name       string
	when       []faultfs.Predicate
	durability kvd.Durability
	operation  string
	file       string // pattern
}{
	{"a write of the log", []faultfs.Predicate{faultfs.OnKind(faultfs.Write), faultfs.OnName("*.wal")}, kvd.Buffered, "write", `data/wal/\d+\.wal`},
	{"a sync of the log", []faultfs.Predicate{faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")}, kvd.Sync, "sync", `data/wal/\d+\.wal`},
	{"the creation of a table", []faultfs.Predicate{faultfs.OnKind(faultfs.Create), faultfs.OnName("*.sst")}, kvd.Buffered, "create", `data/p-\d+/\d+\.sst`},
	{"a write of a table", []faultfs.Predicate{faultfs.OnKind(faultfs.Write), faultfs.OnName("*.sst")}, kvd.Buffered, "write", `data/p-\d+/\d+\.sst`},
	{"a sync of a table", []faultfs.Predicate{faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.sst")}, kvd.Buffered, "sync", `data/p-\d+/\d+\.sst`},
	{"the renaming of a manifest", []faultfs.Predicate{faultfs.OnKind(faultfs.Rename), faultfs.OnName("MANIFEST-*")}, kvd.Buffered, "rename", `data/p-\d+/MANIFEST-\d+\.tmp`},
	{"a sync of a directory", []faultfs.Predicate{faultfs.OnKind(faultfs.SyncDir)}, kvd.Buffered, "sync", `data/p-\d+`},
}

// startFlushing runs a service that flushes after every write, on a disk that can hang.
func startFlushing(t *testing.T, c Config) (*running, *faultfs.FS, *observer.ObservedLogs) {
	t.Helper()
	core, lines := observer.New(zapcore.InfoLevel)
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	c.FS, c.Log, c.FlushKeys = fsys, zap.New(core), 1
	return start(t, c), fsys, lines
}

// putAsync puts a key on a goroutine, which ends with the test at the latest.
func putAsync(t *testing.T, client *kvd.Client, durability kvd.Durability) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Put(ctx, []byte("b"), []byte("2"), kvd.Durable(durability)) // the outcome is open
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// TestAStuckDiskIsNamedAndTurnsReadiness: whatever operation hangs, the service says
// which, is not ready, and goes on to answer from memory; when the disk answers again it
// is ready again.
func TestAStuckDiskIsNamedAndTurnsReadiness(t *testing.T) {
	for _, d := range stuckDisks {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // each waits for a second to pass
			c := testConfig(nil, nil)
			c.MaxSync = time.Hour
			r, fsys, lines := startFlushing(t, c)
			require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
			b := newBlocked()
			fsys.SetInjector(b.on(d.when...))
			putAsync(t, r.client, d.durability)
			<-b.reached
			var body string
			testwait.Until(t, func() bool {
				code, page := r.page("/readyz")
				body = page
				return code == http.StatusServiceUnavailable
			})
			assert.Regexp(t, `\[-\] disk: the disk does not answer: `+d.operation+` of `+d.file+` has not returned for [0-9hm]*s`, body)
			code, _ := r.page("/livez")
			assert.Equal(t, http.StatusOK, code)
			value, err := r.client.Get(t.Context(), []byte("a"))
			require.NoError(t, err)
			assert.Equal(t, "1", string(value))
			// The health service of gRPC is told after the pages.
			testwait.Until(t, func() bool { return r.client.Ping(t.Context()) != nil })
			said := lines.FilterMessage("the disk does not answer").All()
			require.Len(t, said, 1)
			assert.Equal(t, zapcore.WarnLevel, said[0].Level)
			assert.Equal(t, d.operation, said[0].ContextMap()["operation"])
			assert.Regexp(t, d.file, said[0].ContextMap()["file"])
			_, page := r.page("/metrics")
			assert.Contains(t, page, "\nkvd_disk_slow_total 1\n")

			close(b.release)
			testwait.Until(t, func() bool {
				code, _ := r.page("/readyz")
				return code == http.StatusOK
			})
			testwait.Until(t, func() bool { return r.client.Ping(t.Context()) == nil })
			require.NoError(t, r.end())
			assert.Equal(t, 1, lines.FilterMessage("the disk does not answer").Len())
			assert.Equal(t, 1, lines.FilterMessage("the disk answers again").Len())
		})
	}
}

// TestAStuckDiskEndsTheService: whatever operation hangs for longer than the limit.
func TestAStuckDiskEndsTheService(t *testing.T) {
	for _, d := range stuckDisks {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			c := testConfig(nil, nil)
			c.MaxSync = time.Second
			r, fsys, _ := startFlushing(t, c)
			b := newBlocked()
			fsys.SetInjector(b.on(d.when...))
			putAsync(t, r.client, d.durability)
			err := <-r.ended
			require.ErrorIs(t, err, ErrDiskStuck)
			assert.Regexp(t, d.operation+` of `+d.file+` has not returned for 1s`, err.Error())
			assert.Equal(t, ExitIO, ExitCode(err))
			close(b.release)
			r.stop()
		})
	}
}

// TestAStuckOpenEndsTheService: the disk hangs while the store is created, or recovered
// after kill -9, and the service ends at the limit, or when it is told to end and the
// grace period is over.
func TestAStuckOpenEndsTheService(t *testing.T) {
	killed := vfs.NewMem()
	r := start(t, testConfig(zaptest.NewLogger(t), killed))
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
	killed = killed.KillImage()
	require.NoError(t, r.end())

	for name, when := range map[string][]faultfs.Predicate{
		"the first sync":     {faultfs.OnKind(faultfs.SyncDir)},
		"a read of the log":  {faultfs.OnKind(faultfs.Read), faultfs.OnName("*.wal")},
		"a sync of the log":  {faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")},
		"the lock":           {faultfs.OnKind(faultfs.Lock)},
		"the look for STORE": {faultfs.OnKind(faultfs.Stat)},
	} {
		for _, told := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBlocked()
				core, lines := observer.New(zapcore.InfoLevel)
				c := testConfig(zap.New(core), faultfs.Wrap(killed.KillImage(), b.on(when...)))
				c.MaxSync = time.Second
				if told {
					c.MaxSync, c.Grace = time.Hour, time.Millisecond
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				ended := make(chan error, 1)
				go func() {
					ended <- Run(ctx, c, func(net.Addr, net.Addr) { assert.Fail(t, "it is not ready") })
				}()
				<-b.reached
				want := ErrDiskStuck
				if told {
					want = ErrGraceEnded
					testwait.Until(t, func() bool { return lines.FilterMessage("the disk does not answer").Len() > 0 })
					stop()
				}
				err := <-ended
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, ErrDiskStuck, "it says what hung")
				assert.Equal(t, ExitIO, ExitCode(err))
				close(b.release)
			})
		}
	}
}

// TestAStopEndsInTimeWhateverHangs: a call in flight and the closing of the store wait for
// the disk, and the service ends when the grace period is over.
func TestAStopEndsInTimeWhateverHangs(t *testing.T) {
	for _, d := range stuckDisks {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			c := testConfig(nil, nil)
			c.MaxSync, c.Grace = time.Hour, time.Millisecond
			r, fsys, _ := startFlushing(t, c)
			b := newBlocked()
			fsys.SetInjector(b.on(d.when...))
			putAsync(t, r.client, d.durability)
			<-b.reached
			err := r.end()
			require.ErrorIs(t, err, ErrGraceEnded)
			assert.Equal(t, ExitIO, ExitCode(err))
			close(b.release)
		})
	}
}

// TestAPauseOfTheProcessIsNoStuckDisk: a process that was stopped for an hour has not
// waited for the disk for an hour.
func TestAPauseOfTheProcessIsNoStuckDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		fsys := faultfs.Wrap(vfs.NewMem(), b.on(faultfs.OnKind(faultfs.SyncDir)))
		d := newDiskWatch(fsys, 10*time.Second, zap.NewNop())
		ended := make(chan error, 1)
		go func() { ended <- d.fs.SyncDir("/") }()
		<-b.reached
		d.look(diskTick)
		d.look(time.Hour)
		require.NoError(t, d.check())
		require.Empty(t, d.stuck)
		for range 36 {
			d.look(diskTick)
		}
		require.Error(t, d.check())
		require.Empty(t, d.stuck, "ten seconds of it were not spent waiting")
		close(b.release)
		require.NoError(t, <-ended)
		d.look(diskTick)
		require.NoError(t, d.check())
		require.EqualValues(t, 1, d.episodes.Load())
	})
}

// TestAnOperationIsStuckOnTime: slow after a second and stuck after the limit, by the
// clock of a process that runs.
func TestAnOperationIsStuckOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocked()
		fsys := faultfs.Wrap(vfs.NewMem(), b.on(faultfs.OnKind(faultfs.SyncDir)))
		d := newDiskWatch(fsys, time.Hour, zap.NewNop())
		d.setLimit(20 * time.Second)
		begin := time.Now()
		var slow time.Duration
		d.changed = func() {
			if d.check() != nil {
				slow = time.Since(begin)
			}
		}
		d.start()
		ended := make(chan error, 1)
		go func() { ended <- d.fs.SyncDir("/") }()
		err := <-d.stuck
		require.ErrorContains(t, err, "sync of / has not returned for 20s")
		assert.LessOrEqual(t, time.Since(begin), 20*time.Second+2*diskTick)
		assert.GreaterOrEqual(t, time.Since(begin), 20*time.Second)
		assert.LessOrEqual(t, slow, slowDisk+2*diskTick)
		assert.GreaterOrEqual(t, slow, slowDisk)
		close(b.release)
		require.NoError(t, <-ended)
		d.close()
	})
}
