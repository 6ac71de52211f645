package daemon

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

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
