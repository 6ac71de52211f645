package kvd

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	"github.com/kvd-db/kvd/pkg/kvd/internal/transport"
)

// infoLog collects what a hook is told.
type infoLog struct {
	mu    sync.Mutex
	infos []CallInfo
}

func (l *infoLog) hook(i CallInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, i)
}

func (l *infoLog) take() []CallInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := l.infos
	l.infos = nil
	return infos
}

// stable returns what is the same in each run.
func stable(infos []CallInfo) []CallInfo {
	short := []CallInfo{}
	for _, i := range infos {
		short = append(short, CallInfo{Op: i.Op, Keys: i.Keys, Bytes: i.Bytes, Attempts: i.Attempts, Err: i.Err})
	}
	return short
}

func TestAHookHearsOfEachCall(t *testing.T) {
	for name, batching := range map[string]Batching{"in frames": {}, "alone": {Disabled: true}} {
		t.Run(name, func(t *testing.T) {
			var log infoLog
			ctx := t.Context()
			db := serve(t, nil, service.Options{}).open(t, WithHook(log.hook), WithBatching(batching))
			heard := func(want ...CallInfo) {
				t.Helper()
				infos := log.take()
				assert.Equal(t, want, stable(infos))
				for _, i := range infos {
					assert.GreaterOrEqual(t, i.Time, i.Timings.Total())
					assert.Equal(t, i.Attempts > 0, i.Timings.Total() > 0, i.Op)
				}
			}
			k := []byte("key")
			require.NoError(t, db.Put(ctx, k, []byte("12345")))
			heard(CallInfo{Op: "put", Keys: 1, Bytes: 8, Attempts: 1})
			var took Timings
			_, err := db.Get(ctx, k, Timed(&took))
			require.NoError(t, err)
			heard(CallInfo{Op: "get", Keys: 1, Bytes: 8, Attempts: 1})
			assert.Positive(t, took.Total())
			_, err = db.PutItem(ctx, k, []byte("1"), IfValue([]byte("12345")), ReturnPrevious())
			require.NoError(t, err)
			heard(CallInfo{Op: "put", Keys: 1, Bytes: 3 + 1 + 5 + 5, Attempts: 1})
			_, err = db.GetMany(ctx, [][]byte{k, []byte("no")})
			require.NoError(t, err)
			heard(CallInfo{Op: "get many", Keys: 2, Bytes: 6, Attempts: 1})
			assert.Equal(t, []string{"key"}, keys(t, db, All()))
			heard(CallInfo{Op: "scan", Keys: 1, Bytes: 4})
			_, err = db.Apply(ctx, new(Batch).Put(k, nil).Delete([]byte("x")))
			require.NoError(t, err)
			heard(CallInfo{Op: "apply", Keys: 2, Bytes: 4, Attempts: 1})
			require.NoError(t, db.DeleteRange(ctx, Prefix([]byte("x"))))
			heard(CallInfo{Op: "delete range", Keys: 1, Bytes: 2, Attempts: 1})
			_, err = db.Execute(ctx, Execution{If: []Guard{{k, IfPresent()}}, Then: new(Batch).Put(k, k)})
			require.NoError(t, err)
			heard(CallInfo{Op: "execute", Keys: 2, Bytes: 9, Attempts: 1})
			require.NoError(t, db.Update(ctx, func(tx *Txn) error {
				_, err := tx.Get(ctx, k)
				require.NoError(t, err)
				return tx.Put(ctx, k, nil)
			}))
			heard(CallInfo{Op: "snapshot"}, CallInfo{Op: "get", Keys: 1, Bytes: 6, Attempts: 1},
				CallInfo{Op: "commit", Keys: 1, Bytes: 3, Attempts: 1})
			p := db.Pipeline()
			p.Get(k)
			p.Delete([]byte("other"))
			require.NoError(t, p.Do(ctx))
			heard(CallInfo{Op: "get", Keys: 1, Bytes: 3, Attempts: 1}, CallInfo{Op: "delete", Keys: 1, Bytes: 5, Attempts: 1})
			require.NoError(t, db.Ping(ctx))
			heard(CallInfo{Op: "ping"})

			// Errors are those that the caller gets.
			_, err = db.Get(ctx, []byte("absent"))
			require.ErrorIs(t, err, ErrNotFound)
			heard(CallInfo{Op: "get", Keys: 1, Bytes: 6, Attempts: 1, Err: err})
			err = db.Put(ctx, k, nil, IfAbsent())
			require.ErrorIs(t, err, ErrConflict)
			heard(CallInfo{Op: "put", Keys: 1, Bytes: 3, Attempts: 1, Err: err})

			// What was not begun is not reported.
			ended, cancel := context.WithCancel(ctx)
			cancel()
			require.ErrorIs(t, db.Put(ended, k, nil), context.Canceled)
			require.ErrorIs(t, db.Put(ctx, nil, nil), ErrInvalid)
			require.NoError(t, db.Close())
			require.ErrorIs(t, db.Put(ctx, k, nil), ErrClosed)
			heard([]CallInfo{}...)
		})
	}
}

func TestAHookHearsOfAttempts(t *testing.T) {
	var tries servertest.TryLog
	var log infoLog
	db := openOn(t, servertest.Losing(&tries, 2, servertest.Succeed), WithHook(log.hook))
	require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
	infos := log.take()
	require.Len(t, infos, 1)
	assert.Equal(t, 3, infos[0].Attempts)

	invalid := status.Error(codes.InvalidArgument, "no")
	db = openOn(t, servertest.Losing(&tries, 0, func(any) (any, error) { return nil, invalid }), WithHook(log.hook))
	_, err := db.Apply(t.Context(), new(Batch).Put([]byte("k"), nil))
	require.ErrorIs(t, err, ErrInvalid)
	assert.Equal(t, []CallInfo{{Op: "apply", Keys: 1, Bytes: 1, Attempts: 1, Err: err}}, stable(log.take()))
}

// The time of a scan has that of its loop in it.
func TestAHookIsCalledWhenALoopIsLeft(t *testing.T) {
	var log infoLog
	db := openMemory(t, WithHook(log.hook))
	put(t, db, "a", "1", "b", "2")
	log.take()
	begun := time.Now()
	for _, err := range db.Scan(t.Context(), All()) {
		require.NoError(t, err)
		assert.Empty(t, log.take(), "it goes on")
		break
	}
	infos := log.take()
	assert.Equal(t, []CallInfo{{Op: "scan", Keys: 1, Bytes: 2}}, stable(infos))
	assert.LessOrEqual(t, infos[0].Time, time.Since(begun))
}

// Without a hook there is nothing between the calls and the network.
func TestWithoutAHook(t *testing.T) {
	assert.IsType(t, &transport.Network{}, openMemory(t).backend)
}

// BenchmarkHook is a lone Put by a client without a hook and with one that does nothing.
func BenchmarkHook(b *testing.B) {
	for name, hook := range map[string]func(CallInfo){"none": nil, "hook": func(CallInfo) {}} {
		b.Run(name, func(b *testing.B) {
			db, err := Open(new(servertest.Map).Listen(b), WithHook(hook))
			require.NoError(b, err)
			defer func() { assert.NoError(b, db.Close()) }()
			ctx, k, v := context.Background(), []byte("key"), make([]byte, 128)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, db.Put(ctx, k, v))
			}
		})
	}
}
