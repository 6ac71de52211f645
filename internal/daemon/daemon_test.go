package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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

// testConfig is of a service that waits as long as the test for its disk and for its own stop.
func testConfig(log *zap.Logger, fsys vfs.FS) Config {
	c := DefaultConfig()
	c.Grace = min(testwait.Left(), maxWait) // longer in a synctest bubble
	c.MaxSync = c.Grace
	c.Data, c.Listen, c.Admin = "data", "127.0.0.1:0", "127.0.0.1:0"
	c.Partitions, c.Memory, c.FS, c.Log = 2, minMemory, fsys, log
	return c
}

// running is a Run under way.
type running struct {
	t           *testing.T
	client      *kvd.Client
	addr, admin string
	stop        context.CancelFunc
	ended       chan error
}

// start runs a service and waits until it is ready.
func start(t *testing.T, c Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, stop: stop, ended: make(chan error, 1)}
	ready := make(chan [2]string, 1)
	go func() {
		r.ended <- Run(ctx, c, func(listen, admin net.Addr) { ready <- [2]string{listen.String(), admin.String()} })
	}()
	select {
	case addrs := <-ready:
		r.addr, r.admin = addrs[0], addrs[1]
	case err := <-r.ended:
		stop()
		require.NoError(t, err)
	}
	client, err := kvd.Open(r.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	r.client = client
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return r
}

// end stops the service and returns what Run did.
func (r *running) end() error {
	r.stop()
	return <-r.ended
}

func (r *running) page(path string) (int, string) {
	r.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport}).Get("http://" + r.admin + path)
	require.NoError(r.t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	require.NoError(r.t, response.Body.Close())
	return response.StatusCode, string(body)
}

func TestRunServesUntilTheContextEndsAndKeepsTheData(t *testing.T) {
	fsys := vfs.NewMem()
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	require.NoError(t, r.client.Ping(t.Context()))
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
	code, page := r.page("/readyz?verbose")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "[+] open\n[+] store\n[+] running\n[+] disk\n[+] writes\n[+] data\nready\n", page)
	_, page = r.page("/metrics")
	assert.Contains(t, page, `kvd_requests_total{code="OK",method="Pipeline.Put"} 1`)
	assert.Contains(t, page, "kvd_user_written_bytes_total")
	_, page = r.page("/status.txt")
	assert.Contains(t, page, "durability   sync")
	require.NoError(t, r.end())

	r = start(t, testConfig(zaptest.NewLogger(t), fsys.KillImage()))
	value, err := r.client.Get(t.Context(), []byte("a"))
	require.NoError(t, err)
	assert.Equal(t, "1", string(value))
	require.NoError(t, r.end())
	require.ErrorIs(t, r.client.Ping(t.Context()), kvd.ErrUnavailable)
}

func TestEndingWaitsForCallsInFlight(t *testing.T) {
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	reached, release := make(chan struct{}, 1), make(chan struct{})
	fsys.SetInjector(onLogSync(faultfs.Fault{Delay: func() {
		select {
		case reached <- struct{}{}:
		default:
		}
		<-release
	}}))
	written := make(chan error, 1)
	go func() { written <- r.client.Put(t.Context(), []byte("a"), []byte("1")) }()
	<-reached
	r.stop()
	// The write is in flight and cannot end: nor may the service.
	select {
	case err := <-r.ended:
		require.Failf(t, "ended with a write in flight", "%v", err)
	case err := <-written:
		require.Failf(t, "acknowledged before it was synced", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	require.NoError(t, <-written)
	require.NoError(t, <-r.ended)
}

// onLogSync gives every sync of a log segment a fault.
func onLogSync(fault faultfs.Fault) faultfs.Injector {
	isSync, isLog := faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.wal")
	return faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if isSync(op) && isLog(op) {
			return fault
		}
		return faultfs.Fault{}
	})
}

func TestAFailedSyncEndsTheServiceAtOnce(t *testing.T) {
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
	fsys.SetInjector(onLogSync(faultfs.Fault{Err: syscall.EIO}))
	err := r.client.Put(t.Context(), []byte("b"), []byte("2"))
	require.ErrorIs(t, err, kvd.ErrUncertain)
	err = <-r.ended
	assert.Equal(t, ExitIO, ExitCode(err), err)
	require.ErrorIs(t, err, syscall.EIO)
	r.stop()
}

const stuckChild = "TEST_STUCK_SYNC_CHILD"

// A sync that never returns cannot be tidied up after, so it happens in a process
// of its own.
func TestAStuckSyncEndsTheProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), stuckChild+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	assert.Equal(t, ExitIO, exit.ExitCode(), "%s", out)
	assert.Contains(t, string(out), "has not returned for 1s")
}

// runWithStuckSync runs a service whose log is never synced any more once it is
// ready.
func runWithStuckSync(ctx context.Context) error {
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	c := testConfig(log, fsys)
	c.MaxSync = time.Second
	return Run(ctx, c, func(listen, _ net.Addr) {
		fsys.SetInjector(onLogSync(faultfs.Fault{Delay: func() { select {} }}))
		go func() {
			client, err := kvd.Open(listen.String())
			if err == nil {
				err = client.Put(ctx, []byte("a"), []byte("1"))
			}
			log.Info("the write ended", zap.Error(err))
		}()
	})
}

func TestANearlyFullDiskRefusesWritesAndSaysSo(t *testing.T) {
	fsys := vfs.NewMem()
	core, lines := observer.New(zapcore.InfoLevel)
	c := testConfig(zap.New(core), fsys)
	c.LowDisk = 1 << 40
	r := start(t, c)
	require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
	fsys.SetCapacity(1 << 39)
	var err error
	testwait.Until(t, func() bool { // the disk is looked at every second
		err = r.client.Put(t.Context(), []byte("a"), []byte("2"))
		return err != nil
	})
	require.ErrorIs(t, err, kvd.ErrReadOnly)
	require.ErrorContains(t, err, "MiB free, writes resume at", "the figures")
	_, err = r.client.Get(t.Context(), []byte("a"))
	require.NoError(t, err, "reads go on")
	code, page := r.page("/readyz?verbose")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, page, "[-] writes: read-only: the disk is nearly full")
	err = r.client.Ping(t.Context())
	require.ErrorIs(t, err, kvd.ErrReadOnly)
	require.ErrorContains(t, err, "MiB free, writes resume at")
	require.NoError(t, r.client.Delete(t.Context(), []byte("b")), "deletes go on")
	require.ErrorIs(t, r.client.Put(t.Context(), []byte("a"), []byte("2")), kvd.ErrReadOnly)
	_, page = r.page("/metrics")
	assert.Contains(t, page, "\nkvd_readonly 1\n")
	fsys.SetCapacity(1 << 50)
	testwait.Until(t, func() bool { return r.client.Put(t.Context(), []byte("a"), []byte("3")) == nil })
	code, _ = r.page("/readyz")
	assert.Equal(t, http.StatusOK, code)
	require.NoError(t, r.end())
	assert.Len(t, lines.FilterMessageSnippet("the store is read-only").All(), 1, "told once")
	assert.Len(t, lines.FilterMessageSnippet("takes writes again").All(), 1, "told once")
}

// --linger and --batch-ops shape the micro-batches of writes and those of reads.
func TestMicroBatchesWaitAsLongAsTheyAreTold(t *testing.T) {
	c := testConfig(zaptest.NewLogger(t), vfs.NewMem())
	c.Linger = 50 * time.Millisecond
	r := start(t, c)
	for _, call := range []func() error{
		func() error { return r.client.Put(t.Context(), []byte("a"), nil) },
		func() error { _, err := r.client.Get(t.Context(), []byte("a")); return err },
	} {
		begin := time.Now()
		require.NoError(t, call())
		require.GreaterOrEqual(t, time.Since(begin), c.Linger)
	}
	_, page := r.page("/metrics")
	for _, name := range []string{"kvd_batch_wait_seconds", "kvd_read_batch_wait_seconds"} {
		assert.Contains(t, page, "\n"+name+"_count 1\n")
		assert.Contains(t, page, "\n"+name+"_bucket{le=\"0.032768\"} 0\n", "it waited longer")
	}
	require.NoError(t, r.end())

	c = testConfig(zaptest.NewLogger(t), vfs.NewMem())
	c.Linger, c.BatchOps = maxLinger, 1
	r = start(t, c)
	for at := range 2 { // a full micro-batch does not wait, but a busy machine may
		name := []string{"kvd_batch_wait_seconds", "kvd_read_batch_wait_seconds"}[at]
		for waited := true; waited; {
			require.NoError(t, r.client.Put(t.Context(), []byte("a"), nil))
			_, err := r.client.Get(t.Context(), []byte("a"))
			require.NoError(t, err)
			_, page := r.page("/metrics")
			waited = strings.Contains(page, "\n"+name+"_bucket{le=\"0.524288\"} 0\n")
		}
	}
	require.NoError(t, r.end())
}

func TestATakenAddressLeavesTheStoreAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	fsys := faultfs.Wrap(vfs.NewMem(), nil)
	c := testConfig(zaptest.NewLogger(t), fsys)
	for _, field := range []*string{&c.Listen, &c.Admin} {
		was := *field
		*field = l.Addr().String()
		err := Run(t.Context(), c, nil)
		assert.Equal(t, ExitBind, ExitCode(err), err)
		*field = was
	}
	assert.Zero(t, fsys.Count(), "no file was touched")
}

func TestAStoreThatCannotBeOpenedLeavesNothingRunning(t *testing.T) {
	fsys := vfs.NewMem()
	r := start(t, testConfig(zaptest.NewLogger(t), fsys))
	err := Run(t.Context(), testConfig(zaptest.NewLogger(t), fsys), nil)
	assert.Equal(t, ExitLocked, ExitCode(err), err)
	require.NoError(t, r.end())

	require.NoError(t, vfs.WriteAtomic(fsys, "data/STORE", []byte("something else entirely")))
	err = Run(t.Context(), testConfig(zaptest.NewLogger(t), fsys), nil)
	assert.Equal(t, ExitDamaged, ExitCode(err), err)
}

func TestTheServiceIsNotReadyBeforeTheStoreIsOpen(t *testing.T) {
	s := &process{config: testConfig(zap.NewNop(), nil), journal: newJournal(zap.NewNop()), disk: newDiskWatch(vfs.NewMem(), time.Second, zap.NewNop())}
	source := s.source(Build())
	require.NoError(t, source.Alive())
	checks := source.Checks()
	require.ErrorIs(t, checks[0].Err, errOpening)
	s.stopping.Store(true)
	require.ErrorIs(t, source.Checks()[2].Err, errStopping)
	_, open := source.Store()
	assert.False(t, open)
	assert.Zero(t, source.Traffic())
}

func TestTheLogSpeaksTheChosenFormat(t *testing.T) {
	var out bytes.Buffer
	c := DefaultConfig()
	c.LogFormat, c.LogLevel = "json", "warn"
	log := c.NewLog(zapWriter{&out}, true)
	log.Info("hidden")
	for range 1000 {
		log.Warn("a flood", zap.Error(errors.New("x")))
	}
	assert.NotContains(t, out.String(), "hidden")
	assert.Regexp(t, `^\{"level":"warn","ts":"\d{4}-`, out.String())
	assert.LessOrEqual(t, bytes.Count(out.Bytes(), []byte("\n")), 40, "a flood is thinned out")

	c.LogFormat = "auto"
	for terminal, want := range map[bool]string{false: `^\{"level":"warn"`, true: `^\d\d-\d\d .*  warn  x`} {
		out.Reset()
		c.NewLog(zapWriter{&out}, terminal).Warn("x")
		assert.Regexp(t, want, out.String())
	}
}

func TestTimesInTheLogHaveThreeDigits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "1µs", 12_345: "12µs", 999_999: "1ms", 1_234_567: "1.23ms", 73_975_309: "74ms", 1_234_567_890: "1.23s",
		time.Hour + 1_234_567_890: "1h0m1s",
	} {
		assert.Equal(t, want, roundTime(d).String(), "%d ns", int64(d))
	}
}

type zapWriter struct{ *bytes.Buffer }

func (zapWriter) Sync() error { return nil }
