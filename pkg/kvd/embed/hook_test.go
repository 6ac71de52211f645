package embed_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// hookLog collects what a hook is told.
type hookLog struct {
	mu    sync.Mutex
	infos []kvd.CallInfo
}

func (l *hookLog) hook(i kvd.CallInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, i)
}

// stable returns what is the same in each run and for each kind of store.
func (l *hookLog) stable() (infos []kvd.CallInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.infos {
		infos = append(infos, kvd.CallInfo{Op: i.Op, Keys: i.Keys, Bytes: i.Bytes, Attempts: i.Attempts})
	}
	return infos
}

// useAll makes calls of each kind.
func useAll(t *testing.T, db kvd.Store) {
	ctx, k := t.Context(), []byte("key")
	require.NoError(t, db.Put(ctx, k, []byte("12345")))
	_, err := db.Get(ctx, k)
	require.NoError(t, err)
	_, err = db.Get(ctx, []byte("absent"))
	require.ErrorIs(t, err, kvd.ErrNotFound)
	require.ErrorIs(t, db.Put(ctx, k, nil, kvd.IfAbsent()), kvd.ErrConflict)
	_, err = db.PutItem(ctx, k, []byte("1"), kvd.IfValue([]byte("12345")), kvd.ReturnPrevious())
	require.NoError(t, err)
	_, err = db.GetMany(ctx, [][]byte{k, []byte("no")})
	require.NoError(t, err)
	for item, err := range db.Scan(ctx, kvd.All()) {
		require.NoError(t, err)
		assert.Equal(t, "key", string(item.Key))
	}
	_, err = db.Apply(ctx, new(kvd.Batch).Put(k, nil).Delete([]byte("x")))
	require.NoError(t, err)
	require.NoError(t, db.DeleteRange(ctx, kvd.Prefix([]byte("x"))))
	_, err = db.Execute(ctx, kvd.Execution{If: []kvd.Guard{{Key: k, Condition: kvd.IfPresent()}}, Then: new(kvd.Batch).Put(k, k)})
	require.NoError(t, err)
	require.NoError(t, db.Update(ctx, func(tx *kvd.Txn) error {
		_, err := tx.Get(ctx, k)
		return errors.Join(err, tx.Put(ctx, k, nil))
	}))
	p := db.Pipeline()
	p.Get(k)
	p.Delete([]byte("other"))
	p.Get(make([]byte, 5000))
	require.ErrorIs(t, p.Do(ctx), kvd.ErrTooLarge)
	require.NoError(t, db.Ping(ctx))

	// What was not begun is not reported.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, db.Put(ended, k, nil), context.Canceled)
	require.ErrorIs(t, db.Put(ctx, nil, nil), kvd.ErrInvalid)
	require.NoError(t, db.Close())
	require.ErrorIs(t, db.Put(ctx, k, nil), kvd.ErrClosed)
}

// A hook of an embedded store is told what one of a client is.
func TestAHookHearsWhatThatOfAClientDoes(t *testing.T) {
	var embedded, served hookLog
	db, err := embed.Memory(embed.WithHook(embedded.hook))
	require.NoError(t, err)
	useAll(t, db)
	useAll(t, kvdtest.New(t, kvd.WithHook(served.hook)))
	assert.Equal(t, served.stable(), embedded.stable())
	require.Len(t, embedded.infos, 17)
	for i, info := range embedded.infos {
		other := served.infos[i]
		require.Equal(t, other.Err == nil, info.Err == nil, info.Op)
		assert.GreaterOrEqual(t, info.Time, info.Timings.Total(), info.Op)
		if info.Err != nil {
			assert.Equal(t, other.Err.Error(), info.Err.Error())
			continue
		}
		assert.Equal(t, info.Attempts > 0, info.Timings.Total() > 0, info.Op)
	}
}
