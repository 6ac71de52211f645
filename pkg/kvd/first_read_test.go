package kvd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// ops returns the calls that were made since it was called last.
func (l *infoLog) ops() (ops []string) {
	for _, i := range l.take() {
		ops = append(ops, i.Op)
	}
	return ops
}

// openKnowing returns a client that knows the epoch of its server, with another client.
func openKnowing(t *testing.T) (db, other *Client, log *infoLog) {
	t.Helper()
	log = new(infoLog)
	c := serve(t, nil, service.Options{})
	db, other = c.open(t, WithHook(log.hook)), c.open(t)
	put(t, other, "a", "0")
	require.NoError(t, db.Update(t.Context(), readAndWrite(t.Context(), nil, "a")))
	require.Equal(t, []string{"snapshot", "get", "commit"}, log.ops(), "the epoch was not known")
	return db, other, log
}

// readAndWrite is a transaction that reads keys, calls between after the first one if that is not
// nil, and writes the sum of their lengths.
func readAndWrite(ctx context.Context, between func(), keys ...string) func(*Txn) error {
	return func(tx *Txn) error {
		var all []byte
		for i, key := range keys {
			value, err := tx.Get(ctx, []byte(key))
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			all = append(all, value...)
			if i == 0 && between != nil {
				between()
			}
		}
		return tx.Put(ctx, []byte("sum"), all)
	}
}

func TestAnUpdateThatReadsOneKeyTakesNoSnapshot(t *testing.T) {
	ctx := t.Context()
	db, other, log := openKnowing(t)
	for _, key := range []string{"a", "absent"} {
		require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, key)))
		assert.Equal(t, []string{"get", "commit"}, log.ops())

		runs := 0
		change := func() {
			if runs++; runs == 1 {
				put(t, other, key, "new")
			}
		}
		require.NoError(t, db.Update(ctx, readAndWrite(ctx, change, key)))
		assert.Equal(t, []string{"get", "commit", "snapshot", "get", "commit"}, log.ops())
		assert.Equal(t, "new", get(t, other, "sum"))
	}
	require.NoError(t, db.Update(ctx, func(tx *Txn) error {
		_, err := tx.Get(ctx, []byte("a"))
		assert.Positive(t, tx.Version())
		return err
	}))
	assert.Equal(t, []string{"get"}, log.ops())

	require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, "a"), MaxAttempts(1)))
	assert.Equal(t, []string{"snapshot", "get", "commit"}, log.ops(), "there is no second attempt")
	require.NoError(t, other.Put(ctx, []byte("a"), nil, TTL(time.Hour)))
	require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, "a")))
	assert.Equal(t, []string{"get", "snapshot", "get", "commit"}, log.ops(), "it expires")
}

// All reads of a transaction are of one version, or it is run again.
func TestASecondReadTakesTheSnapshot(t *testing.T) {
	ctx := t.Context()
	db, other, log := openKnowing(t)
	put(t, other, "b", "1")
	require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, "a", "b")))
	assert.Equal(t, []string{"get", "snapshot", "get", "get", "commit"}, log.ops())
	assert.Equal(t, "01", get(t, other, "sum"))

	// Once is enough to expect it.
	for range manyReads {
		require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, "a")))
		assert.Equal(t, []string{"snapshot", "get", "commit"}, log.ops())
	}
	require.NoError(t, db.Update(ctx, readAndWrite(ctx, nil, "a")))
	assert.Equal(t, []string{"get", "commit"}, log.ops())

	runs := 0
	change := func() {
		if runs++; runs == 1 {
			put(t, other, "a", "2")
			put(t, other, "b", "3")
		}
	}
	require.NoError(t, db.Update(ctx, readAndWrite(ctx, change, "a", "b")))
	assert.Equal(t, "23", get(t, other, "sum"))
	assert.Equal(t, 2, runs)
}

// A transaction does not commit after a read has failed, since what it read first has changed, even
// if the function goes on.
func TestWhatWasReadFirstHasChanged(t *testing.T) {
	ctx := t.Context()
	db, other, _ := openKnowing(t)
	var errs []error
	require.NoError(t, db.Update(ctx, func(tx *Txn) error {
		first, err := tx.Get(ctx, []byte("a"))
		require.NoError(t, err)
		if len(errs) == 0 {
			put(t, other, "a", "new")
		}
		_, err = tx.GetMany(ctx, [][]byte{[]byte("a")})
		_, again := tx.Get(ctx, []byte("a"))
		assert.Equal(t, err, again)
		errs = append(errs, err)
		return tx.Put(ctx, []byte("sum"), first)
	}))
	require.Len(t, errs, 2)
	require.ErrorIs(t, errs[0], ErrConflict)
	assert.Equal(t, kvdpb.ReasonConflict, requireError(t, errs[0]).Reason)
	require.NoError(t, errs[1])
	assert.Equal(t, "new", get(t, other, "sum"))
}

// What was read in one opening of the store is not written in another one.
func TestAFirstReadBelongsToAnEpoch(t *testing.T) {
	ctx := t.Context()
	var log callLog
	var requests []*kvdpb.CommitRequest
	s := lending(&log, func(_ int, r *kvdpb.CommitRequest) error { requests = append(requests, r); return nil })
	s.Frames = func(_ int, conn servertest.FrameConn) error {
		for {
			r, err := conn.Recv()
			if err != nil {
				return nil
			}
			answer := servertest.AnswerAll(r)
			for _, result := range answer.Results {
				result.GetGet().Meta = &kvdpb.ResponseMeta{Version: 7}
			}
			if err := conn.Send(answer); err != nil {
				return err
			}
		}
	}
	serve, epoch := s.Unary, uint64(1)
	s.Unary = func(request any) (any, error) {
		answer, err := serve(request)
		if s, ok := answer.(*kvdpb.BeginSnapshotResponse); ok {
			s.Epoch = epoch
		}
		return answer, err
	}
	var cuts cuttable
	cuts.dial = s.Dialer(t)
	db, err := Open("memory", WithDialer(cuts.dialer), WithTimeout(testwait.Left()))
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, db.Update(ctx, write(ctx)))
	}
	cuts.cut()
	epoch = 2
	for range 3 {
		require.NoError(t, db.Update(ctx, write(ctx)))
	}
	require.NoError(t, db.Close())
	var epochs []uint64
	for _, r := range requests {
		epochs = append(epochs, r.Epoch)
		assert.Len(t, r.ReadKeys, 1)
		assert.EqualValues(t, 7, r.ReadVersion)
	}
	assert.Equal(t, []uint64{1, 1, 1, 2, 2, 2}, epochs)
	assert.Equal(t, 2, log.count(&kvdpb.BeginSnapshotRequest{}), "one for each connection")
}
