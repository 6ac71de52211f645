package daemon

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// requireServedReadOnly expects that reads go on and that everything else says why it is
// refused.
func (r *running) requireServedReadOnly(key, value, advice string) {
	r.t.Helper()
	ctx := r.t.Context()
	got, err := r.client.Get(ctx, []byte(key))
	require.NoError(r.t, err)
	assert.Equal(r.t, value, string(got))
	scanned := ""
	for item, err := range r.client.Scan(ctx, kvd.Prefix([]byte(key))) {
		require.NoError(r.t, err)
		scanned += string(item.Value)
	}
	assert.Equal(r.t, value, scanned)
	require.NoError(r.t, r.client.View(ctx, func(s *kvd.Snapshot) error {
		seen, err := s.Get(ctx, []byte(key))
		assert.Equal(r.t, value, string(seen))
		return err
	}))
	for _, err := range []error{
		r.client.Put(ctx, []byte(key), nil), r.client.Delete(ctx, []byte(key)), r.client.Ping(ctx),
	} {
		require.ErrorIs(r.t, err, kvd.ErrReadOnly)
		require.ErrorContains(r.t, err, "takes no writes: the file system of the data directory")
		require.ErrorContains(r.t, err, advice)
		require.NotErrorIs(r.t, err, kvd.ErrUncertain)
	}
	code, page := r.page("/readyz?verbose")
	assert.Equal(r.t, http.StatusServiceUnavailable, code)
	assert.Contains(r.t, page, "[-] writes: read-only: the file system of the data directory")
	assert.Contains(r.t, page, "(--data data)")
	code, _ = r.page("/livez")
	assert.Equal(r.t, http.StatusOK, code)
	_, page = r.page("/metrics")
	assert.Contains(r.t, page, "\nkvd_readonly 1\n")
}

func TestAReadOnlyFileSystemIsServed(t *testing.T) {
	const resumes, restart = "writes then resume by themselves", "then restart the server"
	observed := func(fsys vfs.FS) (Config, *observer.ObservedLogs) {
		core, lines := observer.New(zapcore.InfoLevel)
		return testConfig(zap.New(core), fsys), lines
	}
	t.Run("under an idle server", func(t *testing.T) {
		fsys := vfs.NewMem()
		var put, marked atomic.Bool // the put was answered; after that the log wrote a mark and began to sync it
		var wrote atomic.Bool
		c, lines := observed(faultfs.Wrap(fsys, faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			switch {
			case !put.Load() || !strings.Contains(op.Name, "wal"):
			case op.Kind == faultfs.Write && op.Len < 4096: // not the zeros of a new segment
				wrote.Store(true)
			case op.Kind == faultfs.Sync && wrote.Load():
				marked.Store(true)
			}
			return faultfs.Fault{}
		})))
		r := start(t, c)
		require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
		put.Store(true)
		testwait.Until(t, marked.Load) // a log that still has to write fails, and the store is opened again
		fsys.SetReadOnly(true)
		testwait.Until(t, func() bool { return lines.FilterMessageSnippet("puts and deletes are refused").Len() > 0 })
		r.requireServedReadOnly("a", "1", resumes)
		fsys.SetReadOnly(false)
		testwait.Until(t, func() bool { return r.client.Put(t.Context(), []byte("a"), []byte("2")) == nil })
		code, _ := r.page("/readyz")
		assert.Equal(t, http.StatusOK, code)
		require.NoError(t, r.end())
		assert.Len(t, lines.FilterMessageSnippet("puts and deletes are refused").All(), 1, "told once")
		assert.Len(t, lines.FilterMessageSnippet("takes writes again").All(), 1, "told once")
	})
	t.Run("under writes", func(t *testing.T) {
		fsys := vfs.NewMem()
		c, lines := observed(fsys)
		r := start(t, c)
		acked := 0
		var err error
		for n := 1; err == nil; n++ {
			if n == 50 {
				fsys.SetReadOnly(true)
			}
			if err = r.client.Put(t.Context(), []byte("a"), []byte(strconv.Itoa(n))); err == nil {
				acked = n
			}
		}
		require.Equal(t, 49, acked, "%v", err)
		testwait.Until(t, func() bool { return lines.FilterMessageSnippet("puts and deletes are refused").Len() > 0 })
		value, err := r.client.Get(t.Context(), []byte("a"))
		require.NoError(t, err)
		assert.Contains(t, []string{"49", "50"}, string(value), "the write that failed may have happened")
		r.requireServedReadOnly("a", string(value), restart)
		assert.Len(t, lines.FilterMessageSnippet("the store is opened again, to be read").All(), 1)
		require.NoError(t, r.end())
	})
	t.Run("before the start", func(t *testing.T) {
		fsys := vfs.NewMem()
		r := start(t, testConfig(zap.NewNop(), fsys))
		require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("1")))
		killed := fsys.KillImage()
		require.NoError(t, r.end())
		for _, image := range []*vfs.Mem{fsys, killed} {
			image.SetReadOnly(true)
			c, lines := observed(image)
			r := start(t, c)
			r.requireServedReadOnly("a", "1", restart)
			require.NoError(t, r.end())
			assert.Len(t, lines.FilterMessageSnippet("puts and deletes are refused").All(), 1, "told once")
			image.SetReadOnly(false)
			r = start(t, testConfig(zap.NewNop(), image))
			require.NoError(t, r.client.Put(t.Context(), []byte("a"), []byte("2")))
			require.NoError(t, r.end())
		}
	})
}

// A disk that fails a sync, so that the service looks whether it has become read-only, and
// then hangs ends the service after the limit all the same.
func TestADiskThatFailsAndThenHangsEndsTheService(t *testing.T) {
	for name, end := range map[string]struct {
		maxSync time.Duration
		stop    bool
	}{
		"after the limit": {2 * time.Second, false},
		"when it is told": {time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys := faultfs.Wrap(vfs.NewMem(), nil)
			c := testConfig(zap.NewNop(), fsys)
			c.MaxSync = end.maxSync
			r := start(t, c)
			b := newBlocked()
			defer close(b.release)
			hang := b.on(faultfs.OnKind(faultfs.OpenReadWrite), faultfs.OnName("STORE"))
			var failed atomic.Bool
			fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if faultfs.OnKind(faultfs.Sync)(op) && faultfs.OnName("*.wal")(op) {
					failed.Store(true)
					return faultfs.Fault{Err: syscall.EIO}
				}
				if failed.Load() {
					return hang.Inject(op)
				}
				return faultfs.Fault{}
			}))
			require.Error(t, r.client.Put(t.Context(), []byte("a"), nil))
			<-b.reached
			if end.stop {
				r.stop()
			}
			err := <-r.ended
			require.ErrorIs(t, err, kv.ErrFailed)
			if !end.stop {
				require.ErrorIs(t, err, ErrDiskStuck)
			}
			assert.Equal(t, 74, ExitCode(err))
		})
	}
}
