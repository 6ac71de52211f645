package kvd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// tryLog collects the options with which writes arrive at a scripted server.
type tryLog struct {
	mu   sync.Mutex
	seen []*kvdpb.RequestOptions
}

func (l *tryLog) add(o *kvdpb.RequestOptions) (tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, o)
	return len(l.seen)
}

func (l *tryLog) take() []*kvdpb.RequestOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.seen
	l.seen = nil
	return seen
}

func optionsOf(request any) *kvdpb.RequestOptions {
	return request.(interface{ GetOptions() *kvdpb.RequestOptions }).GetOptions()
}

// losing is a server that answers reads at version 7, loses its connection under
// the first losses tries of each write, and answers later ones by then.
func losing(log *tryLog, losses int, then func(request any) (any, error)) *scripted {
	gone := status.Error(codes.Unavailable, "the connection broke")
	s := &scripted{}
	s.unary = func(request any) (any, error) {
		if request, ok := request.(*kvdpb.BatchGetRequest); ok {
			return &kvdpb.BatchGetResponse{
				Lookups: make([]*kvdpb.BatchGetResponse_Lookup, len(request.Keys)),
				Meta:    &kvdpb.ResponseMeta{Version: 7},
			}, nil
		}
		if _, ok := request.(*kvdpb.BeginSnapshotRequest); ok {
			return &kvdpb.BeginSnapshotResponse{SnapshotId: 1, Version: 7, LeaseMs: 60_000}, nil
		}
		if _, ok := request.(*kvdpb.ReleaseSnapshotRequest); ok {
			return &kvdpb.ReleaseSnapshotResponse{}, nil
		}
		if log.add(optionsOf(request)) <= losses {
			return nil, gone
		}
		return then(request)
	}
	s.pipeline = func(_ int, stream scriptedLink) error {
		for {
			frame, err := stream.Recv()
			if err != nil {
				return nil
			}
			response := answerAll(frame)
			for i, op := range frame.Ops {
				if op.GetGet() != nil {
					response.Results[i].GetGet().Meta = &kvdpb.ResponseMeta{Version: 7}
					continue
				}
				var request any = op.GetPut()
				if op.GetDelete() != nil {
					request = op.GetDelete()
				}
				if log.add(optionsOf(request)) <= losses {
					return gone
				}
				if _, err := then(request); err != nil {
					f := faultOfStatus(err)
					response.Results[i] = &kvdpb.PipelineResponse_Result{Tag: op.Tag, Status: &kvdpb.Status{
						Code: int32(status.Code(err)), Reason: f.reason, Version: f.version,
					}}
				}
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
	}
	return s
}

func succeed(request any) (any, error) {
	meta := &kvdpb.ResponseMeta{Version: 9}
	switch request.(type) {
	case *kvdpb.PutRequest:
		return &kvdpb.PutResponse{Meta: meta}, nil
	case *kvdpb.DeleteRequest:
		return &kvdpb.DeleteResponse{Meta: meta}, nil
	case *kvdpb.DeleteRangeRequest:
		return &kvdpb.DeleteRangeResponse{Meta: meta}, nil
	case *kvdpb.WriteRequest:
		return &kvdpb.WriteResponse{Meta: meta}, nil
	case *kvdpb.CommitRequest:
		return &kvdpb.CommitResponse{Meta: meta}, nil
	case *kvdpb.ExecuteRequest:
		return &kvdpb.ExecuteResponse{Succeeded: true, Meta: meta}, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "%T", request)
}

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

// Every write is tried again under the name that it had at first, with what the
// client knew then, and no two writes have the same name.
func TestAWriteKeepsItsNameThroughItsTries(t *testing.T) { everyTransport(t, aWriteKeepsItsName) }

func aWriteKeepsItsName(t *testing.T, opts ...Option) {
	var log tryLog
	db := losing(&log, 2, succeed).open(t, opts...)
	ctx := context.Background()
	_, err := db.GetMany(ctx, [][]byte{[]byte("k")})
	require.NoError(t, err)
	known := uint64(7)
	names := make(map[uint64]string)
	for what, write := range writesOf(db) {
		require.NoError(t, write(ctx), what)
		tries := log.take()
		require.Len(t, tries, 3, what)
		for i, o := range tries {
			assert.Equal(t, networkOf(db).names.client, o.ClientId, what)
			assert.Equal(t, tries[0].Sequence, o.Sequence, what)
			assert.Equal(t, i > 0, o.Retried, what)
			if o.Retried {
				assert.Equal(t, known, o.KnownVersion, what)
			}
		}
		require.NotContains(t, names, tries[0].Sequence, what)
		names[tries[0].Sequence] = what
		known = max(known, networkOf(db).names.newest.Load())
	}
	assert.EqualValues(t, 9, known, "the versions of writes are seen too")
	assert.NotZero(t, networkOf(db).names.client)
}

// A try of which the server says that it did nothing is not marked as a retry.
func TestATryThatDidNothingLeavesNoDoubt(t *testing.T) { everyTransport(t, aTryThatDidNothing) }

func aTryThatDidNothing(t *testing.T, opts ...Option) {
	var log tryLog
	tries := 0
	overloaded := withReason(t, status.New(codes.ResourceExhausted, "full"), kvdpb.ReasonOverloaded)
	db := losing(&log, 0, func(request any) (any, error) {
		if tries++; tries%2 == 1 {
			return nil, overloaded
		}
		return succeed(request)
	}).open(t, opts...)
	for what, write := range writesOf(db) {
		require.NoError(t, write(context.Background()), what)
		seen := log.take()
		require.Len(t, seen, 2, what)
		assert.Equal(t, seen[0].Sequence, seen[1].Sequence, what)
		assert.False(t, seen[1].Retried, what)
	}
}

// Once a try was lost, a later one that did nothing does not settle what became of
// the write: the first may still be on its way.
func TestADoubtOutlastsALaterRefusal(t *testing.T) {
	reasons := map[string]*status.Status{
		kvdpb.ReasonOverloaded:      status.New(codes.ResourceExhausted, "full"),
		kvdpb.ReasonShuttingDown:    status.New(codes.Unavailable, "bye"),
		kvdpb.ReasonReadOnly:        status.New(codes.Unavailable, "disk full"),
		kvdpb.ReasonConditionFailed: status.New(codes.FailedPrecondition, "there"),
	}
	for reason, s := range reasons {
		t.Run(reason, func(t *testing.T) {
			everyTransport(t, func(t *testing.T, opts ...Option) {
				t.Parallel() // it waits between tries
				var log tryLog
				refused := withReason(t, s, reason)
				db := losing(&log, 1, func(any) (any, error) { return nil, refused }).open(t, opts...)
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
					require.ErrorIs(t, err, faultOfStatus(refused).err)
					assert.Equal(t, reason, requireError(t, err).Reason)
					log.take()
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
	var log tryLog
	ctx := context.Background()
	failed := withReason(t, status.New(codes.FailedPrecondition, "other"), kvdpb.ReasonConditionFailed, kvdpb.MetadataVersion, "8")
	db := losing(&log, 1, func(any) (any, error) { return nil, failed }).open(t, opts...)
	for what, write := range writesOf(db, IfVersion(3)) {
		if strings.HasPrefix(what, "commit") || strings.Contains(what, "range") || what == "execute" {
			continue
		}
		err := write(ctx)
		require.ErrorIs(t, err, ErrConflict, what)
		require.NotErrorIs(t, err, ErrUncertain, what)
		e := requireError(t, err)
		assert.Equal(t, Error{Op: e.Op, Reason: "CONDITION_FAILED", Message: e.Message, Version: 8, Attempts: 2, Err: ErrConflict}, *e, what)
		log.take()
	}

	conflict := withReason(t, status.New(codes.Aborted, "conflict"), kvdpb.ReasonConflict)
	db = losing(&log, 1, func(any) (any, error) { return nil, conflict }).open(t, opts...)
	err := writesOf(db)["commit"](ctx)
	require.ErrorIs(t, err, ErrConflict)
	require.NotErrorIs(t, err, ErrUncertain)
	assert.Len(t, log.take(), 2)
}

// A server does not remember what a write replaced. So a write that asks for it has no
// request id, and is not tried again once it is in doubt.
func TestAWriteWithoutANameIsTriedOnce(t *testing.T) { everyTransport(t, aWriteWithoutAName) }

func aWriteWithoutAName(t *testing.T, opts ...Option) {
	var log tryLog
	ctx := context.Background()
	db := losing(&log, 1, succeed).open(t, opts...)
	for _, size := range []int{1, 100 << 10} {
		require.ErrorIs(t, replace(ctx, db, []byte("k"), make([]byte, size)), ErrUncertain)
		tries := log.take()
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
				var log tryLog
				db := losing(&log, 100, succeed).open(t, opts...)
				err := writesOf(db)[what](context.Background())
				require.ErrorIs(t, err, ErrUncertain)
				require.ErrorIs(t, err, ErrUnavailable)
				e := requireError(t, err)
				assert.Equal(t, maxAttempts, e.Attempts)
				assert.Len(t, log.take(), maxAttempts)
				assert.Contains(t, err.Error(), fmt.Sprintf("(%d attempts)", maxAttempts))
			})
		})
	}
}
