package kvd

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A snapshot does not change, by any way of reading, including reads by other clients at its
// version.
func TestASnapshotStaysAsItWas(t *testing.T) {
	ctx := context.Background()
	for name, batching := range map[string]Batching{"in frames": {}, "alone": {Disabled: true}} {
		t.Run(name, func(t *testing.T) {
			db := openMemory(t, WithBatching(batching))
			put(t, db, "a", "1", "b", "1", "c", "1")
			s, err := db.Snapshot(ctx)
			require.NoError(t, err)
			defer s.Close()
			put(t, db, "a", "2", "d", "2")
			require.NoError(t, db.DeleteRange(ctx, Between([]byte("b"), []byte("d"))))

			old := []Lookup{
				{Item: Item{Key: []byte("a"), Value: []byte("1"), Version: 1}, Found: true},
				{Item: Item{Key: []byte("d")}},
			}
			for _, r := range []Reader{s, atReader{db, s.Version()}} {
				assert.Equal(t, "1", get(t, r, "a"))
				assert.Equal(t, "1", get(t, r, "b"))
				assert.Equal(t, "-", get(t, r, "d"))
				item, err := r.GetItem(ctx, []byte("a"))
				require.NoError(t, err)
				assert.Equal(t, old[0].Item, item)
				found, err := r.GetMany(ctx, [][]byte{[]byte("a"), []byte("d")})
				require.NoError(t, err)
				assert.Equal(t, old, found)
				assert.Equal(t, []string{"a", "b", "c"}, keys(t, r, All()))
				assert.Equal(t, []string{"c", "b"}, keys(t, r, All(), Reverse(), Limit(2)))
			}
			assert.Equal(t, []string{"a", "d"}, keys(t, db, All()))
			require.NoError(t, s.Close())
			require.NoError(t, s.Close(), "twice is harmless")
			_, err = s.Get(ctx, []byte("a"))
			require.ErrorIs(t, err, ErrClosed)
		})
	}
}

// atReader reads at the version of a snapshot of another client.
type atReader struct {
	*Client
	version uint64
}

func (r atReader) Get(ctx context.Context, key []byte, _ ...ReadOption) ([]byte, error) {
	return r.Client.Get(ctx, key, AtVersion(r.version))
}

func (r atReader) GetItem(ctx context.Context, key []byte, _ ...ReadOption) (Item, error) {
	return r.Client.GetItem(ctx, key, AtVersion(r.version))
}

func (r atReader) GetMany(ctx context.Context, keys [][]byte, _ ...ReadOption) ([]Lookup, error) {
	return r.Client.GetMany(ctx, keys, AtVersion(r.version))
}

func (r atReader) Scan(ctx context.Context, in Range, opts ...ScanOption) iter.Seq2[Item, error] {
	return r.Client.Scan(ctx, in, append(opts, AtVersion(r.version))...)
}

// A lease that was not renewed has ended, and so has what it held.
func TestASnapshotThatExpired(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	put(t, db, "a", "1")
	s, err := db.Snapshot(ctx)
	require.NoError(t, err)
	defer s.Close()
	tx := begin(t, db)
	assert.Equal(t, "1", get(t, tx, "a"))
	put(t, tx, "b", "1")
	c.store.Advance(servicetest.MaxLease)

	_, err = s.Get(ctx, []byte("a"))
	require.ErrorIs(t, err, ErrVersionGone)
	_, err = s.GetMany(ctx, [][]byte{[]byte("a")})
	require.ErrorIs(t, err, ErrVersionGone)
	for _, err := range s.Scan(ctx, All()) {
		require.ErrorIs(t, err, ErrVersionGone)
	}
	_, err = tx.Get(ctx, []byte("a"))
	require.ErrorIs(t, err, ErrVersionGone)
	_, err = db.Get(ctx, []byte("a"), AtVersion(s.Version()))
	require.ErrorIs(t, err, ErrVersionGone)
}

// A server that was restarted knows no snapshots: View begins anew, as Update does.
func TestALostSnapshotRunsTheViewAgain(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	put(t, db, "a", "1")
	var seen []string
	view := func(lost int, opts ...TxnOption) error {
		seen = nil
		return db.View(ctx, func(s *Snapshot) error {
			first, err := s.Get(ctx, []byte("a"))
			require.NoError(t, err)
			if seen = append(seen, string(first)); len(seen) <= lost {
				put(t, db, "a", strconv.Itoa(len(seen)+1))
				c.store.Advance(servicetest.MaxLease) // the server knows it no more
			}
			for _, err := range s.Scan(ctx, All()) {
				if err != nil {
					return fmt.Errorf("scan: %w", err)
				}
			}
			return nil
		}, opts...)
	}
	require.NoError(t, view(2))
	assert.Equal(t, []string{"1", "2", "3"}, seen, "each on newer data")

	// It is bounded, and a snapshot that is too old would be too old again.
	err := view(100, MaxAttempts(3))
	require.ErrorIs(t, err, ErrVersionGone)
	assert.Len(t, seen, 3)
	e := requireError(t, err)
	assert.Equal(t, "view", e.Op)
	assert.Equal(t, 3, e.Attempts)
	runs := 0
	require.ErrorIs(t, db.View(ctx, func(*Snapshot) error { runs++; return ErrVersionGone }, MaxAge(1)), ErrVersionGone)
	assert.Equal(t, 1, runs)
	require.ErrorIs(t, db.View(ctx, nil, MaxAge(-1)), ErrInvalid)
}

// Closing gives the snapshot back, without waiting for it; the client's Close does
// wait.
func TestSnapshotsAreGivenBack(t *testing.T) {
	ctx := context.Background()
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	put(t, db, "a", "1")
	for range 2 * servicetest.MaxSnapshots {
		require.NoError(t, db.View(ctx, func(s *Snapshot) error {
			assert.Equal(t, "1", get(t, s, "a"))
			return nil
		}))
	}
	require.ErrorIs(t, db.View(ctx, func(*Snapshot) error { return assert.AnError }), assert.AnError)
	require.NoError(t, db.Close())
	assert.Zero(t, c.store.SnapshotCount())
	_, err := db.Snapshot(ctx)
	require.ErrorIs(t, err, ErrClosed)
}

// An open snapshot is renewed, with the lease that was asked for, until the client
// is closed.
func TestAnOpenSnapshotIsRenewed(t *testing.T) {
	kept := make(chan *kvdpb.KeepSnapshotRequest)
	s := &servertest.Scripted{Unary: func(request any) (any, error) {
		switch r := request.(type) {
		case *kvdpb.BeginSnapshotRequest:
			assert.EqualValues(t, 45, r.LeaseMs)
			return &kvdpb.BeginSnapshotResponse{SnapshotId: 5, Version: 7, LeaseMs: 30}, nil
		case *kvdpb.KeepSnapshotRequest:
			kept <- r
			return &kvdpb.KeepSnapshotResponse{LeaseMs: 30}, nil
		}
		return nil, status.Errorf(codes.Unimplemented, "%T", request)
	}}
	db := openOn(t, s)
	snapshot, err := db.Snapshot(context.Background(), Lease(45*time.Millisecond))
	require.NoError(t, err)
	assert.EqualValues(t, 7, snapshot.Version())
	for range 3 {
		r := <-kept
		assert.EqualValues(t, 5, r.SnapshotId)
		assert.EqualValues(t, 45, r.LeaseMs)
	}
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	for open := true; open; {
		select {
		case <-kept: // was under way
		case err := <-closed:
			require.NoError(t, err)
			open = false
		}
	}
	_, err = snapshot.Get(context.Background(), []byte("k"))
	require.ErrorIs(t, err, ErrClosed)
}
