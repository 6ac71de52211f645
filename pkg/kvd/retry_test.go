package kvd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// writesOf has every kind of write, in a frame or alone.
func writesOf(db *Client, opts ...WriteOption) map[string]func(context.Context) error {
	k, v := []byte("k"), []byte("v")
	return map[string]func(context.Context) error{
		"put":          func(ctx context.Context) error { return db.Put(ctx, k, v, opts...) },
		"large put":    func(ctx context.Context) error { return db.Put(ctx, k, make([]byte, 100<<10), opts...) },
		"delete":       func(ctx context.Context) error { return db.Delete(ctx, k, opts...) },
		"delete range": func(ctx context.Context) error { return db.DeleteRange(ctx, Prefix(k)) },
		"apply": func(ctx context.Context) error {
			_, err := db.Apply(ctx, new(Batch).Put(k, v, opts...))
			return err
		},
		"commit": func(ctx context.Context) error {
			tx, err := db.Begin()
			if err != nil {
				return err
			}
			if err := tx.Put(ctx, k, v); err != nil {
				return err
			}
			_, err = tx.Commit(ctx)
			return err
		},
		"execute": func(ctx context.Context) error {
			_, err := db.Execute(ctx, Execution{Then: new(Batch).Put(k, v)})
			return err
		},
	}
}

// tries bounds the tries of a call of a client with one endpoint.
const tries = 6

// Every write is tried again under the name that it had at first, with what the
// client knew then, and no two writes have the same name.
func TestAWriteKeepsItsNameThroughItsTries(t *testing.T) { everyTransport(t, aWriteKeepsItsName) }

func aWriteKeepsItsName(t *testing.T, opts ...Option) {
	var log servertest.TryLog
	db := openOn(t, servertest.Losing(&log, 2, servertest.Succeed), opts...)
	ctx := context.Background()
	_, err := db.GetMany(ctx, [][]byte{[]byte("k")})
	require.NoError(t, err)
	known := uint64(7)
	names := make(map[uint64]string)
	var client uint64
	for what, write := range writesOf(db) {
		require.NoError(t, write(ctx), what)
		tries := log.Take()
		require.Len(t, tries, 3, what)
		for i, o := range tries {
			client = cmp.Or(client, o.ClientId)
			assert.Equal(t, client, o.ClientId, what)
			assert.Equal(t, tries[0].Sequence, o.Sequence, what)
			assert.Equal(t, i > 0, o.Retried, what)
			if o.Retried {
				assert.Equal(t, known, o.KnownVersion, what)
			}
		}
		require.NotContains(t, names, tries[0].Sequence, what)
		names[tries[0].Sequence] = what
		if what != "put" && what != "delete" { // a frame of the script has no version
			known = 9
		}
	}
	assert.EqualValues(t, 9, known, "the versions of writes are seen too")
	assert.NotZero(t, client)
}

// refusingFirst returns a server that refuses the first of two tries with an error.
func refusingFirst(err error) func(request any) (any, error) {
	tries := 0
	return func(request any) (any, error) {
		if tries++; tries%2 == 1 {
			return nil, err
		}
		return servertest.Succeed(request)
	}
}

// A try of which the server says that it did nothing is not marked as a retry.
func TestATryThatDidNothingLeavesNoDoubt(t *testing.T) { everyTransport(t, aTryThatDidNothing) }

func aTryThatDidNothing(t *testing.T, opts ...Option) {
	var log servertest.TryLog
	overloaded := servertest.WithReason(t, status.New(codes.ResourceExhausted, "full"), kvdpb.ReasonOverloaded)
	db := openOn(t, servertest.Losing(&log, 0, refusingFirst(overloaded)), opts...)
	for what, write := range writesOf(db) {
		require.NoError(t, write(context.Background()), what)
		seen := log.Take()
		require.Len(t, seen, 2, what)
		assert.Equal(t, seen[0].Sequence, seen[1].Sequence, what)
		assert.False(t, seen[1].Retried, what)
	}
}

// Once a try was lost, a later one that did nothing does not settle what became of
// the write: the first may still be on its way.
func TestADoubtOutlastsALaterRefusal(t *testing.T) {
	reasons := map[string]struct {
		status *status.Status
		want   error
	}{
		kvdpb.ReasonOverloaded:      {status.New(codes.ResourceExhausted, "full"), ErrOverloaded},
		kvdpb.ReasonShuttingDown:    {status.New(codes.Unavailable, "bye"), ErrUnavailable},
		kvdpb.ReasonReadOnly:        {status.New(codes.Unavailable, "disk full"), ErrReadOnly},
		kvdpb.ReasonConditionFailed: {status.New(codes.FailedPrecondition, "there"), ErrConflict},
	}
	for reason, test := range reasons {
		t.Run(reason, func(t *testing.T) {
			everyTransport(t, func(t *testing.T, opts ...Option) {
				t.Parallel() // it waits between tries
				var log servertest.TryLog
				refused := servertest.WithReason(t, test.status, reason)
				db := openOn(t, servertest.Losing(&log, 1, func(any) (any, error) { return nil, refused }), opts...)
				ctx, k := context.Background(), []byte("k")
				for _, write := range []func() error{
					func() error { return db.Put(ctx, k, nil, IfAbsent()) },
					func() error {
						_, err := db.Apply(ctx, new(Batch).Put(k, nil, IfValue(nil)).Put(k, nil, IfVersion(1)))
						return err
					},
				} {
					err := write()
					require.ErrorIs(t, err, ErrUncertain)
					require.ErrorIs(t, err, test.want)
					assert.Equal(t, reason, requireError(t, err).Reason)
					log.Take()
				}
			})
		})
	}
}

func requireError(t *testing.T, err error) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok, "%v", err)
	return e
}

// What was written since stays written, so these answers settle all tries.
func TestAConflictSettlesADoubt(t *testing.T) { everyTransport(t, aConflictSettlesADoubt) }

func aConflictSettlesADoubt(t *testing.T, opts ...Option) {
	var log servertest.TryLog
	ctx := context.Background()
	failed := servertest.WithReason(t, status.New(codes.FailedPrecondition, "other"), kvdpb.ReasonConditionFailed, kvdpb.MetadataVersion, "8")
	db := openOn(t, servertest.Losing(&log, 1, func(any) (any, error) { return nil, failed }), opts...)
	for what, write := range writesOf(db, IfVersion(3)) {
		if strings.HasPrefix(what, "commit") || strings.Contains(what, "range") || what == "execute" {
			continue
		}
		err := write(ctx)
		require.ErrorIs(t, err, ErrConflict, what)
		require.NotErrorIs(t, err, ErrUncertain, what)
		e := requireError(t, err)
		assert.Equal(t, Error{Op: e.Op, Reason: "CONDITION_FAILED", Message: e.Message, Version: 8, Attempts: 2, Err: ErrConflict}, *e, what)
		log.Take()
	}

	conflict := servertest.WithReason(t, status.New(codes.Aborted, "conflict"), kvdpb.ReasonConflict)
	db = openOn(t, servertest.Losing(&log, 1, func(any) (any, error) { return nil, conflict }), opts...)
	err := writesOf(db)["commit"](ctx)
	require.ErrorIs(t, err, ErrConflict)
	require.NotErrorIs(t, err, ErrUncertain)
	assert.Len(t, log.Take(), 2)
}

// A server does not remember what a write replaced. So a write that asks for it has no
// request id, and is not tried again once it is in doubt.
func TestAWriteWithoutANameIsTriedOnce(t *testing.T) { everyTransport(t, aWriteWithoutAName) }

func aWriteWithoutAName(t *testing.T, opts ...Option) {
	var log servertest.TryLog
	ctx := context.Background()
	db := openOn(t, servertest.Losing(&log, 1, servertest.Succeed), opts...)
	for _, size := range []int{1, 100 << 10} {
		require.ErrorIs(t, replace(ctx, db, []byte("k"), make([]byte, size)), ErrUncertain)
		tries := log.Take()
		require.Len(t, tries, 1)
		assert.Zero(t, tries[0].GetClientId())
		assert.Zero(t, tries[0].GetSequence())
	}
}

// replace is Put by a write without a request id.
func replace(ctx context.Context, db *Client, key, value []byte) error {
	_, err := db.PutItem(ctx, key, value, ReturnPrevious())
	return err
}

// What stays lost is uncertain, after a bounded number of tries.
func TestTriesAreBounded(t *testing.T) {
	for what := range writesOf(nil) {
		t.Run(what, func(t *testing.T) {
			everyTransport(t, func(t *testing.T, opts ...Option) {
				t.Parallel() // it waits between tries
				var log servertest.TryLog
				db := openOn(t, servertest.Losing(&log, 100, servertest.Succeed), opts...)
				err := writesOf(db)[what](context.Background())
				require.ErrorIs(t, err, ErrUncertain)
				require.ErrorIs(t, err, ErrUnavailable)
				e := requireError(t, err)
				assert.Equal(t, tries, e.Attempts)
				assert.Len(t, log.Take(), tries)
				assert.Contains(t, err.Error(), fmt.Sprintf("(%d attempts)", tries))
			})
		})
	}
}

// A reset of a call's stream, by the server or by a proxy, is not the caller's doing:
// the call is tried again.
func TestAResetCallIsTriedAgain(t *testing.T) {
	for name, reset := range map[string]error{
		"by a proxy":    status.Error(codes.Canceled, "reset"),
		"with a reason": servertest.WithReason(t, status.New(codes.Canceled, "the call was cancelled; nothing was done"), kvdpb.ReasonCancelled),
	} {
		t.Run(name, func(t *testing.T) {
			var log servertest.TryLog
			var tries atomic.Int32
			db := openOn(t, servertest.Losing(&log, 0, func(request any) (any, error) {
				if tries.Add(1) == 1 {
					return nil, reset
				}
				return servertest.Succeed(request)
			}), WithBatching(Batching{Disabled: true}))
			require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
			assert.EqualValues(t, 2, tries.Load())
		})
	}
}
