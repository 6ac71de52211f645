package kvd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func begin(t *testing.T, db *Client) *Txn {
	t.Helper()
	tx, err := db.Begin()
	require.NoError(t, err)
	t.Cleanup(tx.Discard)
	return tx
}

func put(t *testing.T, w Writer, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(t, w.Put(context.Background(), []byte(pairs[i]), []byte(pairs[i+1])))
	}
}

func get(t *testing.T, r Reader, key string) string {
	t.Helper()
	value, err := r.Get(context.Background(), []byte(key))
	if errors.Is(err, ErrNotFound) {
		return "-"
	}
	require.NoError(t, err)
	return string(value)
}

func keys(t *testing.T, r Reader, in Range, opts ...ScanOption) (keys []string) {
	t.Helper()
	for item, err := range r.Scan(context.Background(), in, opts...) {
		require.NoError(t, err)
		keys = append(keys, string(item.Key))
	}
	return keys
}

// Uncommitted writes are invisible to others, and after its first read a transaction does not
// see later writes of others.
func TestATransactionIsApart(t *testing.T) {
	db := openMemory(t)
	put(t, db, "a", "1", "b", "1")
	tx := begin(t, db)
	assert.Zero(t, tx.Version(), "it begins with its first read")
	put(t, tx, "c", "tx")
	assert.Equal(t, "1", get(t, tx, "a"))
	assert.NotZero(t, tx.Version())
	put(t, db, "b", "2", "d", "2")
	assert.Equal(t, []string{"a", "b", "c"}, keys(t, tx, All()))
	assert.Equal(t, "-", get(t, db, "c"))
	tx.Discard()
	assert.Equal(t, "-", get(t, db, "c"))
}

// Of two transactions that read what the other writes, one is run again.
func TestAConflict(t *testing.T) {
	ctx := context.Background()
	for name, read := range map[string]func(*Txn) error{
		"a key":       func(tx *Txn) error { _, err := tx.GetItem(ctx, []byte("b")); return err },
		"several":     func(tx *Txn) error { _, err := tx.GetMany(ctx, [][]byte{[]byte("b"), []byte("x")}); return err },
		"an absence":  func(tx *Txn) error { return tx.Put(ctx, []byte("new"), nil, IfAbsent()) },
		"a range":     func(tx *Txn) error { keys(t, tx, Prefix([]byte("b"))); return nil },
		"in reverse":  func(tx *Txn) error { keys(t, tx, Prefix([]byte("b")), Reverse()); return nil },
		"a phantom":   func(tx *Txn) error { keys(t, tx, Prefix([]byte("n"))); return nil },
		"a removal":   func(tx *Txn) error { keys(t, tx, Prefix([]byte("gone"))); return nil },
		"up to limit": func(tx *Txn) error { keys(t, tx, Prefix([]byte("b")), Limit(1)); return nil },
		"a condition": func(tx *Txn) error { return tx.Delete(ctx, []byte("b"), IfPresent()) },
	} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(t *testing.T, db *Client) {
				put(t, db, "b", "1", "gone", "1")
				tx := begin(t, db)
				require.NoError(t, read(tx))
				put(t, tx, "mine", "1")
				put(t, db, "b", "2", "new", "2")
				require.NoError(t, db.Delete(ctx, []byte("gone")))
				_, err := tx.Commit(ctx)
				require.ErrorIs(t, err, ErrConflict)
				assert.Equal(t, kvdpb.ReasonConflict, requireError(t, err).Reason)
				assert.Equal(t, "-", get(t, db, "mine"))
			})
		})
	}
}

// What a scan did not come to is not read.
func TestAScanReadsNoFurtherThanItsLoop(t *testing.T) {
	ctx := context.Background()
	for name, scan := range map[string]func(*Txn){
		"left": func(tx *Txn) {
			for item, err := range tx.Scan(ctx, All()) {
				require.NoError(t, err)
				if string(item.Key) == "k2" {
					break
				}
			}
		},
		"limited":    func(tx *Txn) { keys(t, tx, All(), Limit(2)) },
		"in reverse": func(tx *Txn) { keys(t, tx, Between(nil, []byte("k6")), Reverse(), Limit(1)) },
		"own last": func(tx *Txn) {
			put(t, tx, "k20", "mine")
			assert.Equal(t, []string{"k1", "k2", "k20"}, keys(t, tx, All(), Limit(3)))
		},
		"not begun": func(tx *Txn) { tx.Scan(ctx, All()) },
		"own writes alone": func(tx *Txn) {
			put(t, tx, "k0", "mine")
			assert.Equal(t, []string{"k0"}, keys(t, tx, All(), Limit(1)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			everyStore(t, func(t *testing.T, db *Client) {
				put(t, db, "k1", "", "k2", "", "k3", "", "k4", "", "k5", "")
				tx := begin(t, db)
				scan(tx)
				put(t, tx, "mine", "")
				put(t, db, "k3", "other", "k20", "other", "k6", "other")
				require.NoError(t, db.Delete(ctx, []byte("k4")))
				_, err := tx.Commit(ctx)
				require.NoError(t, err)
			})
		})
	}
}

// A commit in the middle of a loop checks what the loop has seen until then.
func TestACommitWithinAScan(t *testing.T) {
	ctx := context.Background()
	for _, conflict := range []bool{false, true} {
		db := openMemory(t)
		put(t, db, "k1", "", "k2", "", "k3", "")
		tx := begin(t, db)
		var committed, last error
		items := 0
		for item, err := range tx.Scan(ctx, All()) {
			if last = err; err != nil {
				break
			}
			if items++; string(item.Key) != "k2" {
				continue
			}
			put(t, tx, "mine", "")
			if conflict {
				put(t, db, "k1", "other")
			}
			_, committed = tx.Commit(ctx)
		}
		assert.Equal(t, 2, items)
		require.ErrorIs(t, last, ErrClosed, "the scan ends with its transaction")
		assert.Equal(t, conflict, errors.Is(committed, ErrConflict), "%v", committed)
	}
}

// Conditions in a transaction are about what it sees, its own writes included.
func TestConditionsInATransaction(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	put(t, db, "a", "1")
	stored, err := db.GetItem(ctx, []byte("a"))
	require.NoError(t, err)
	tx := begin(t, db)
	a, b := []byte("a"), []byte("b")

	require.NoError(t, tx.Put(ctx, a, []byte("2"), IfVersion(stored.Version)))
	require.NoError(t, tx.Put(ctx, a, []byte("3"), IfValue([]byte("2"))))
	require.NoError(t, tx.Delete(ctx, a, IfPresent()))
	require.NoError(t, tx.Put(ctx, a, []byte("4"), IfAbsent()))
	require.NoError(t, tx.Put(ctx, b, []byte("5"), IfVersion(0), TTL(time.Hour)))
	item, err := tx.GetItem(ctx, b)
	require.NoError(t, err)
	assert.Equal(t, Item{Key: b, Value: []byte("5"), TTL: time.Hour}, item)

	for _, o := range []WriteOption{IfAbsent(), IfVersion(stored.Version), IfValue([]byte("1"))} {
		err := tx.Put(ctx, a, []byte("no"), o)
		require.ErrorIs(t, err, ErrConflict)
		assert.Equal(t, kvdpb.ReasonConditionFailed, requireError(t, err).Reason)
	}
	require.ErrorIs(t, tx.Delete(ctx, []byte("x"), IfPresent()), ErrConflict)
	_, err = tx.Commit(ctx)
	require.NoError(t, err, "it goes on without what failed")
	assert.Equal(t, "4", get(t, db, "a"))
	item, err = db.GetItem(ctx, b)
	require.NoError(t, err)
	assert.Positive(t, item.TTL)
	assert.LessOrEqual(t, item.TTL, time.Hour)
}

func TestATransactionThatIsOver(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	k := []byte("k")
	put(t, db, "k", "1")
	for name, end := range map[string]func(*testing.T, *Txn){
		"committed": func(t *testing.T, tx *Txn) { _, err := tx.Commit(ctx); require.NoError(t, err) },
		"discarded": func(_ *testing.T, tx *Txn) { tx.Discard(); tx.Discard() },
		"refused":   func(t *testing.T, tx *Txn) { _, err := tx.Commit(ctx, TTL(1)); require.ErrorIs(t, err, ErrInvalid) },
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, db)
			get(t, tx, "k")
			put(t, tx, "mine", name)
			end(t, tx)
			_, err := tx.Commit(ctx)
			require.ErrorIs(t, err, ErrClosed)
			_, err = tx.Get(ctx, k)
			require.ErrorIs(t, err, ErrClosed)
			_, err = tx.GetMany(ctx, nil)
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, tx.Put(ctx, k, nil), ErrClosed)
			require.ErrorIs(t, tx.Delete(ctx, k), ErrClosed)
			require.ErrorIs(t, tx.DeleteRange(ctx, Prefix(k)), ErrClosed)
			for _, err := range tx.Scan(ctx, All()) {
				require.ErrorIs(t, err, ErrClosed)
			}
			tx.Discard()
		})
	}
	assert.Equal(t, "committed", get(t, db, "mine"))
}

func TestATransactionRefusesWhatItDoesNotTake(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	tx := begin(t, db)
	k := []byte("k")
	for _, err := range []error{
		tx.Put(ctx, nil, nil),
		tx.Put(ctx, k, nil, Durable(Sync)),
		tx.Put(ctx, k, nil, ReturnPrevious()),
		tx.Put(ctx, k, nil, Timed(new(Timings))),
		tx.Put(ctx, k, nil, TTL(-1)),
		tx.Put(ctx, k, nil, IfAbsent(), IfPresent()),
		tx.Delete(ctx, k, TTL(time.Second)),
		tx.DeleteRange(ctx, Prefix(k), IfPresent()),
		func() error { _, err := tx.Get(ctx, nil); return err }(),
		func() error { _, err := tx.Get(ctx, k, AtVersion(1)); return err }(),
		func() error { _, err := tx.GetMany(ctx, [][]byte{k}, AtVersion(1)); return err }(),
		func() error { _, err := tx.GetMany(ctx, [][]byte{k, nil}); return err }(),
		func() error {
			for _, err := range tx.Scan(ctx, All(), AtVersion(1)) {
				return err
			}
			return nil
		}(),
		func() error { _, err := db.Begin(MaxAttempts(0)); return err }(),
		func() error { _, err := db.Begin(Lease(-1)); return err }(),
		func() error { _, err := db.Snapshot(ctx, MaxAge(0)); return err }(),
		db.Update(ctx, func(*Txn) error { return nil }, MaxAttempts(-1)),
	} {
		require.ErrorIs(t, err, ErrInvalid)
	}
	assert.True(t, tx.writes.empty())
}

// calls counts what arrives at a scripted server.
type callLog struct {
	mu    sync.Mutex
	calls map[string]int
}

func (l *callLog) add(request any) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[string]int)
	}
	name := fmt.Sprintf("%T", request)
	l.calls[name]++
	return l.calls[name]
}

func (l *callLog) count(request any) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[fmt.Sprintf("%T", request)]
}

// lending is a server that serves snapshots and reads, and commits as it is told.
func lending(log *callLog, commit func(n int, r *kvdpb.CommitRequest) error) *servertest.Scripted {
	s := &servertest.Scripted{Frames: func(_ int, stream servertest.FrameConn) error { return servertest.ServeFrames(stream) }}
	s.Unary = func(request any) (any, error) {
		n := log.add(request)
		switch r := request.(type) {
		case *kvdpb.BeginSnapshotRequest:
			return &kvdpb.BeginSnapshotResponse{SnapshotId: uint64(n), Version: 7, LeaseMs: 60_000}, nil
		case *kvdpb.ReleaseSnapshotRequest:
			return &kvdpb.ReleaseSnapshotResponse{}, nil
		case *kvdpb.CommitRequest:
			if err := commit(n, r); err != nil {
				return nil, err
			}
			return &kvdpb.CommitResponse{Meta: &kvdpb.ResponseMeta{Version: 9}}, nil
		}
		return nil, status.Errorf(codes.Unimplemented, "%T", request)
	}
	return s
}

func allow(int, *kvdpb.CommitRequest) error { return nil }

// A transaction asks the server for no more than it needs.
func TestTheCallsOfATransaction(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		reads, writes         bool
		snapshots, commits    int
		version               uint64
		readVersion, readKeys int
	}{
		"nothing": {},
		"reads":   {reads: true, snapshots: 1, version: 7},
		"writes":  {writes: true, commits: 1, version: 9},
		"both":    {reads: true, writes: true, snapshots: 1, commits: 1, version: 9, readVersion: 7, readKeys: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var log callLog
			var request *kvdpb.CommitRequest
			db := openOn(t, lending(&log, func(_ int, r *kvdpb.CommitRequest) error { request = r; return nil }))
			tx := begin(t, db)
			if test.reads {
				for range 3 {
					get(t, tx, "a")
				}
			}
			if test.writes {
				put(t, tx, "b", "")
			}
			version, err := tx.Commit(ctx)
			require.NoError(t, err)
			require.NoError(t, db.Close(), "waits for what is given back")
			assert.Equal(t, test.version, version)
			assert.Equal(t, test.snapshots, log.count(&kvdpb.BeginSnapshotRequest{}))
			assert.Equal(t, test.snapshots, log.count(&kvdpb.ReleaseSnapshotRequest{}))
			assert.Equal(t, test.commits, log.count(&kvdpb.CommitRequest{}))
			assert.EqualValues(t, test.readVersion, request.GetReadVersion())
			assert.Len(t, request.GetReadKeys(), test.readKeys)
		})
	}
}

// A snapshot that the commit has released is not released again. After a commit that failed it is,
// and so it is if the server is older than that.
func TestASnapshotEndsWithItsCommit(t *testing.T) {
	for name, test := range map[string]struct {
		endsWithCommit bool
		err            error
		named          uint64
		releases       int
	}{
		"released":     {endsWithCommit: true, named: 1},
		"conflict":     {endsWithCommit: true, err: status.Error(codes.Aborted, ""), named: 1, releases: 1},
		"older server": {releases: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var log callLog
			var request *kvdpb.CommitRequest
			s := lending(&log, func(_ int, r *kvdpb.CommitRequest) error { request = r; return test.err })
			serve := s.Unary
			s.Unary = func(request any) (any, error) {
				answer, err := serve(request)
				if s, ok := answer.(*kvdpb.BeginSnapshotResponse); ok {
					s.EndsWithCommit = test.endsWithCommit
				}
				return answer, err
			}
			db := openOn(t, s)
			tx := begin(t, db)
			get(t, tx, "a")
			put(t, tx, "b", "")
			_, err := tx.Commit(t.Context())
			assert.Equal(t, test.err == nil, err == nil, "%v", err)
			require.NoError(t, db.Close(), "waits for what is given back")
			assert.Equal(t, test.named, request.GetSnapshotId())
			assert.Equal(t, test.releases, log.count(&kvdpb.ReleaseSnapshotRequest{}))
		})
	}
}

func TestATransactionReadsOnlySoMuch(t *testing.T) {
	ctx := context.Background()
	db := openOn(t, lending(new(callLog), allow))
	tx := begin(t, db)
	for i := range maxReads {
		_, err := tx.Get(ctx, strconv.AppendInt(nil, int64(i), 10))
		require.NoError(t, err)
	}
	_, err := tx.Get(ctx, []byte("0"))
	require.NoError(t, err, "again is not more")
	_, err = tx.Get(ctx, []byte("one more"))
	require.ErrorIs(t, err, ErrTooLarge)
	for _, err := range tx.Scan(ctx, All()) {
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// A transaction takes its snapshot with its first read, if it takes one, and releases it with its
// commit: two frames for each.
func TestATransactionBeginsWithItsFirstRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := serve(t, nil, service.Options{})
		db := c.open(t)
		key, absent := []byte("k"), []byte("absent")
		require.NoError(t, db.Put(ctx, key, []byte("v")))
		frames := c.server.Stats().RawFrames
		for range 3 {
			require.NoError(t, db.Update(ctx, func(tx *Txn) error {
				item, err := tx.GetItem(ctx, key)
				assert.Equal(t, "v", string(item.Value))
				assert.Equal(t, string(key), string(item.Key))
				return errors.Join(err, tx.Put(ctx, []byte("other"), nil))
			}))
		}
		assert.Equal(t, frames+6, c.server.Stats().RawFrames)

		require.NoError(t, db.Put(ctx, key, []byte("v"), TTL(time.Hour)))
		conflicts := func(key []byte, write func() error) {
			t.Helper()
			tx, err := db.Begin()
			require.NoError(t, err)
			_, err = tx.Get(ctx, key)
			if !bytes.Equal(key, []byte("k")) {
				require.ErrorIs(t, err, ErrNotFound)
			}
			require.NoError(t, write())
			require.NoError(t, tx.Put(ctx, []byte("other"), nil))
			_, err = tx.Commit(ctx)
			require.ErrorIs(t, err, ErrConflict)
		}
		conflicts(absent, func() error { return db.Put(ctx, absent, nil) })
		conflicts(key, func() error { return db.Put(ctx, key, []byte("v"), TTL(time.Second)) })
		conflicts(key, func() error { c.store.Advance(time.Minute); return nil })
	})
}
