package kvd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestSlowRequests(t *testing.T) {
	db := serve(t, nil, service.Options{SlowTime: 1, SlowEntries: 8}).open(t, WithBatching(Batching{Disabled: true}))
	ctx := t.Context()
	begun := time.Now()
	require.NoError(t, db.Put(ctx, []byte("key"), []byte("value")))
	_, err := db.Get(ctx, []byte("absent"))
	require.ErrorIs(t, err, ErrNotFound)

	log, err := db.SlowRequests(ctx, 0)
	require.NoError(t, err)
	assert.EqualValues(t, 1, log.Threshold)
	assert.EqualValues(t, 2, log.Total)
	require.Len(t, log.Requests, 2)
	for i := range log.Requests {
		r := &log.Requests[i]
		assert.WithinDuration(t, begun, r.At, time.Since(begun)+time.Millisecond)
		assert.Positive(t, r.Timings.Total())
		r.At, r.Timings = time.Time{}, Timings{}
	}
	assert.Equal(t, []SlowRequest{
		{ID: 2, Method: "Get", Code: "NotFound", Peer: "bufconn", KeyPrefix: []byte("absent"), KeyBytes: 6, Ops: 1, Bytes: 6},
		{ID: 1, Method: "Put", Code: "OK", Peer: "bufconn", KeyPrefix: []byte("key"), KeyBytes: 3, Ops: 1, Bytes: 8},
	}, log.Requests)

	log, err = db.SlowRequests(ctx, 1)
	require.NoError(t, err)
	require.Len(t, log.Requests, 1)
	assert.EqualValues(t, 2, log.Requests[0].ID)

	require.NoError(t, db.ClearSlowRequests(ctx))
	log, err = db.SlowRequests(ctx, 0)
	require.NoError(t, err)
	assert.Empty(t, log.Requests)
}

// A server from before there was a slow log says that it does not know the method.
func TestSlowRequestsOfAnOlderServer(t *testing.T) {
	db := openOn(t, &servertest.Scripted{})
	_, err := db.SlowRequests(t.Context(), 0)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, db.ClearSlowRequests(t.Context()), ErrInvalid)
}
