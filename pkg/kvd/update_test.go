package kvd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Counters that many goroutines raise at once come out right.
func TestUpdatesAreSerializable(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	put(t, db, "n", "0")
	const callers, each = 8, 20
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				n, err := Transact(ctx, db, func(tx *Txn) (int, error) {
					n := 0
					value, err := tx.Get(ctx, []byte("n"))
					if err == nil {
						n, err = strconv.Atoi(string(value))
					} else if errors.Is(err, ErrNotFound) {
						err = nil
					}
					if err != nil {
						return 0, err
					}
					n++
					return n, tx.Put(ctx, []byte("n"), []byte(strconv.Itoa(n)))
				}, MaxAttempts(1000))
				assert.NoError(t, err)
				assert.Positive(t, n)
			}
		})
	}
	all.Wait()
	assert.Equal(t, strconv.Itoa(callers*each), get(t, db, "n"))
}

func conflicts(t *testing.T) error {
	return servertest.WithReason(t, status.New(codes.Aborted, "conflict"), kvdpb.ReasonConflict)
}

// write is a transaction that reads and writes.
func write(ctx context.Context) func(*Txn) error {
	return func(tx *Txn) error {
		if _, err := tx.Get(ctx, []byte("a")); err != nil {
			return err
		}
		return tx.Put(ctx, []byte("b"), nil)
	}
}

func TestAConflictRunsTheTransactionAgain(t *testing.T) {
	ctx := context.Background()
	var log callLog
	conflict := conflicts(t)
	db := openOn(t, lending(&log, func(n int, _ *kvdpb.CommitRequest) error {
		if n < 4 {
			return conflict
		}
		return nil
	}))
	var runs []*Txn
	result, err := Transact(ctx, db, func(tx *Txn) (int, error) {
		runs = append(runs, tx)
		return len(runs), write(ctx)(tx)
	}, CommitWith(Durable(Sync)))
	require.NoError(t, err)
	assert.Equal(t, 4, result)
	assert.EqualValues(t, 9, runs[3].CommittedVersion())
	assert.Zero(t, runs[2].CommittedVersion(), "it lost")
	assert.Equal(t, 4, log.count(&kvdpb.BeginSnapshotRequest{}), "each on newer data")
}

func TestAConflictThatStays(t *testing.T) {
	conflict := conflicts(t)
	db := openOn(t, lending(new(callLog), func(int, *kvdpb.CommitRequest) error { return conflict }))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := db.Update(ctx, write(ctx), MaxAttempts(3))
	require.ErrorIs(t, err, ErrConflict)
	e := requireError(t, err)
	assert.Equal(t, "update", e.Op)
	assert.Equal(t, 3, e.Attempts)
	assert.Equal(t, kvdpb.ReasonConflict, e.Reason)

	// The context wins over the attempts that are left.
	runs := 0
	err = db.Update(ctx, func(tx *Txn) error {
		if runs++; runs == 3 {
			cancel()
		}
		return write(context.Background())(tx)
	}, MaxAttempts(1_000_000))
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 3, runs)
}

// A context that ends between two attempts does not hide the conflict.
func TestTheContextEndsBetweenAttempts(t *testing.T) {
	conflict := &Error{Op: "commit", Reason: kvdpb.ReasonConflict, Err: ErrConflict}
	o, err := newTxnOptions(nil)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithTimeout(t.Context(), conflictMax)
		defer cancel()
		for _, ctx := range []context.Context{ended, late} {
			n, err := 1, error(nil)
			for ; err == nil; n++ {
				err = (&txnOptions{maxAttempts: 1_000_000}).again(ctx, "update", n, conflict)
			}
			require.ErrorIs(t, err, ctx.Err())
			require.ErrorIs(t, err, ErrConflict)
			e := requireError(t, err)
			assert.Equal(t, Error{Op: "update", Reason: kvdpb.ReasonConflict, Attempts: n - 1, Err: e.Err}, *e)
			if ctx == late {
				assert.Greater(t, n, 3)
			}
		}
		begun := time.Now()
		for n := 1; n < o.maxAttempts; n++ {
			require.NoError(t, o.again(t.Context(), "update", n, conflict))
		}
		assert.Less(t, time.Since(begun), 2*time.Second)
		assert.NotSame(t, conflict, o.again(t.Context(), "update", o.maxAttempts, conflict))
	})
}

// Errors of the function come back as they are, and are not tried again, also if
// they look like a conflict.
func TestAnErrorOfTheFunction(t *testing.T) {
	ctx := context.Background()
	var log callLog
	db := openOn(t, lending(&log, allow))
	for _, want := range []error{assert.AnError, ErrConflict, &Error{Op: "elsewhere", Reason: kvdpb.ReasonConflict, Err: ErrConflict}, ErrVersionGone} {
		runs := 0
		err := db.Update(ctx, func(tx *Txn) error {
			runs++
			if err := tx.Put(ctx, []byte("k"), nil); err != nil {
				return err
			}
			return want
		})
		assert.Same(t, want, err)
		assert.Equal(t, 1, runs)
	}
	runs := 0
	err := db.Update(ctx, func(tx *Txn) error {
		runs++
		return tx.Put(ctx, []byte("k"), nil, IfAbsent()) // lending has every key
	})
	require.ErrorIs(t, err, ErrConflict)
	assert.Equal(t, kvdpb.ReasonConditionFailed, requireError(t, err).Reason)
	assert.Equal(t, 1, runs)
	assert.Zero(t, log.count(&kvdpb.CommitRequest{}))

	assert.PanicsWithValue(t, "a bug", func() {
		_ = db.Update(ctx, func(tx *Txn) error {
			get(t, tx, "k")
			panic("a bug")
		})
	})
	require.NoError(t, db.Close())
	assert.Equal(t, log.count(&kvdpb.BeginSnapshotRequest{}), log.count(&kvdpb.ReleaseSnapshotRequest{}), "also after a panic")
}

// A server that was restarted knows no snapshots: the transaction begins anew.
// One that is uncertain is not run again.
func TestALostSnapshotRunsTheTransactionAgain(t *testing.T) {
	ctx := context.Background()
	gone := servertest.WithReason(t, status.New(codes.OutOfRange, "gone"), kvdpb.ReasonVersionGone)
	var log callLog
	db := openOn(t, lending(&log, func(n int, _ *kvdpb.CommitRequest) error {
		if n == 1 {
			return gone
		}
		return nil
	}))
	require.NoError(t, db.Update(ctx, write(ctx)))
	assert.Equal(t, 2, log.count(&kvdpb.CommitRequest{}))

	// Too old, it would be too old again.
	err := db.Update(ctx, func(tx *Txn) error {
		if err := write(ctx)(tx); err != nil {
			return err
		}
		return &Error{Op: "get", Err: ErrVersionGone}
	}, MaxAge(1))
	require.ErrorIs(t, err, ErrVersionGone)

	var uncertain callLog
	db = openOn(t, lending(&uncertain, func(n int, _ *kvdpb.CommitRequest) error {
		if n == 1 {
			return status.Error(codes.Unavailable, "the connection broke")
		}
		return gone
	}))
	err = db.Update(ctx, write(ctx))
	require.ErrorIs(t, err, ErrUncertain)
	require.ErrorIs(t, err, ErrVersionGone)
	assert.Equal(t, 2, uncertain.count(&kvdpb.CommitRequest{}))
	assert.Equal(t, 1, uncertain.count(&kvdpb.BeginSnapshotRequest{}))

	// A server that was restarted since, and does not know the commit, says that it was
	// not applied by the one before either.
	var restarted callLog
	opening := servertest.WithReason(t, status.New(codes.OutOfRange, "gone"), kvdpb.ReasonVersionGone, kvdpb.MetadataCause, kvdpb.CauseOpening)
	db = openOn(t, lending(&restarted, func(n int, _ *kvdpb.CommitRequest) error {
		return []error{status.Error(codes.Unavailable, "the connection broke"), opening, nil}[n-1]
	}))
	require.NoError(t, db.Update(ctx, write(ctx)))
	assert.Equal(t, 3, restarted.count(&kvdpb.CommitRequest{}))
}
