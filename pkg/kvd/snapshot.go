package kvd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Snapshot reads the whole store as it was at one version. It keeps the server
// from dropping that version, so close it soon. Safe for concurrent use.
//
// The server lends a snapshot out under a lease, which the client renews until
// the snapshot is closed or has its greatest age. When the lease has ended, or
// the server was restarted, reads are ErrVersionGone.
type Snapshot struct {
	client  *Client
	id      uint64
	version uint64
	epoch   uint64 // of version: the server's opening of its store; 0: it is too old to tell
	lease   *lease
	closed  atomic.Bool
}

var _ Reader = (*Snapshot)(nil)

// Snapshot returns a snapshot of the newest version: everything that was
// acknowledged before the call is in it. Close it. It takes Lease and MaxAge. It
// costs a round trip.
func (c *Client) Snapshot(ctx context.Context, opts ...TxnOption) (*Snapshot, error) {
	o, err := newTxnOptions(opts)
	if err != nil {
		return nil, &Error{Op: "snapshot", Err: err}
	}
	return c.snapshot(ctx, &o)
}

func (c *Client) snapshot(ctx context.Context, o *txnOptions) (*Snapshot, error) {
	request := &kvdpb.BeginSnapshotRequest{LeaseMs: leaseMillis(o.lease)}
	var r *kvdpb.BeginSnapshotResponse
	err := c.unary(ctx, "snapshot", func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = conn.txn.BeginSnapshot(ctx, request, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.Version == 0 { // it would read the newest
		return nil, &Error{Op: "snapshot", Attempts: 1, Err: ErrInternal, Message: "the server's snapshot has no version"}
	}
	c.names.see(r.Version)
	s := &Snapshot{client: c, id: r.SnapshotId, version: r.Version, epoch: r.Epoch}
	s.lease = newLease(c.open, leaseOf(r.LeaseMs), o.maxAge, func(ctx context.Context) (time.Duration, error) {
		return c.keepSnapshot(ctx, s.id, o.lease)
	})
	return s, nil
}

// View calls fn with a snapshot of the newest version and closes it. If the server
// lost the snapshot, as when it was restarted, and fn returns the ErrVersionGone of a
// read, fn runs again with a newer snapshot, as in Update; so it should begin anew
// whatever it collects. It takes Lease, MaxAge and MaxAttempts. Other errors of fn
// come back as they are.
func (c *Client) View(ctx context.Context, fn func(s *Snapshot) error, opts ...TxnOption) error {
	const name = "view"
	o, err := newTxnOptions(opts)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	for attempt := 1; ; attempt++ {
		lost, err := c.viewOnce(ctx, &o, fn)
		if !lost {
			return err
		}
		if err := o.again(ctx, name, attempt, err); err != nil {
			return err
		}
	}
}

// viewOnce calls fn with a snapshot. After an error it reports whether the server lost
// that.
func (c *Client) viewOnce(ctx context.Context, o *txnOptions, fn func(s *Snapshot) error) (lost bool, err error) {
	s, err := c.snapshot(ctx, o)
	if err != nil {
		return false, err
	}
	defer s.Close()
	err = fn(s)
	return s.lost(err), err
}

// lost reports whether an error says that the server lost the snapshot, though it was
// not too old.
func (s *Snapshot) lost(err error) bool {
	return errors.Is(err, ErrVersionGone) && !s.lease.over()
}

// Version is what the snapshot reads at. While it is open others may read there
// too, by AtVersion.
func (s *Snapshot) Version() uint64 { return s.version }

// Close gives the snapshot back; loops over scans that are still under way may
// fail. It is idempotent, does not wait for the server, and returns nil.
func (s *Snapshot) Close() error {
	if !s.closed.Swap(true) {
		s.lease.end()
		s.client.releaseSnapshot(s.id)
	}
	return nil
}

// Get is Client.Get at the version of the snapshot.
func (s *Snapshot) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	o, err := s.readOptions("get", opts)
	if err != nil {
		return nil, err
	}
	item, err := s.client.get(ctx, key, o)
	return item.Value, err
}

// GetItem is Client.GetItem at the version of the snapshot.
func (s *Snapshot) GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error) {
	o, err := s.readOptions("get", opts)
	if err != nil {
		return Item{}, err
	}
	return s.client.getItem(ctx, key, o)
}

// GetMany is Client.GetMany at the version of the snapshot.
func (s *Snapshot) GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error) {
	o, err := s.readOptions("get many", opts)
	if err != nil {
		return nil, err
	}
	return s.client.getMany(ctx, keys, o)
}

// Scan is Client.Scan at the version of the snapshot.
func (s *Snapshot) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	o := collectScan(opts)
	err := s.check("scan", o.readOptions)
	s.readAt(&o.readOptions)
	if err != nil {
		return func(yield func(Item, error) bool) { yield(Item{}, err) }
	}
	return s.client.scan(ctx, r, o)
}

// readOptions are those of a read of the snapshot.
func (s *Snapshot) readOptions(op string, opts []ReadOption) (readOptions, error) {
	o := collectRead(opts)
	err := s.check(op, o)
	s.readAt(&o)
	return o, err
}

// readAt has a read be at the version of the snapshot.
func (s *Snapshot) readAt(o *readOptions) { o.at, o.epoch = s.version, s.epoch }

func (s *Snapshot) check(op string, o readOptions) error {
	switch {
	case s.closed.Load():
		return &Error{Op: op, Err: ErrClosed, Message: "the snapshot was closed"}
	case o.at != 0:
		return &Error{Op: op, Err: errAtVersion}
	}
	return nil
}

var errAtVersion = fmt.Errorf("%w: snapshots and transactions read at versions of their own", ErrInvalid)

// keepSnapshot renews a lease.
func (c *Client) keepSnapshot(ctx context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	request := &kvdpb.KeepSnapshotRequest{SnapshotId: id, LeaseMs: leaseMillis(lease)}
	var r *kvdpb.KeepSnapshotResponse
	err := c.unary(ctx, "keep snapshot", func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = conn.txn.KeepSnapshot(ctx, request, opts...)
		return err
	})
	return leaseOf(r.GetLeaseMs()), err
}

const (
	// maxReleases bounds the snapshots that are being given back in the background.
	maxReleases = 64
	// releaseTimeout is as long as Close of a client may wait for them.
	releaseTimeout = time.Second
)

// releaseSnapshot gives a snapshot back in the background, or, if that is not
// keeping up, at once. Where it fails the lease ends it.
func (c *Client) releaseSnapshot(id uint64) {
	if !c.calls.enter() {
		return
	}
	release := func() {
		defer c.calls.leave()
		ctx, cancel := context.WithTimeout(c.life, releaseTimeout)
		defer cancel()
		conn := c.pick(func(c *conn) int64 { return c.calls.Load() })
		conn.calls.Add(1)
		defer conn.calls.Add(-1)
		if _, err := conn.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: id}); err != nil {
			c.config.logger.Debug("kvd: a snapshot was not given back; its lease ends it", "error", err)
		}
	}
	select {
	case c.releases <- struct{}{}:
		go func() {
			defer func() { <-c.releases }()
			release()
		}()
	default:
		release()
	}
}

// leaseMillis is a lease as the protocol has it, rounded up; 0 leaves it to the
// server.
func leaseMillis(d time.Duration) uint32 { return uint32(min(ttlMillis(d), math.MaxUint32)) }

func leaseOf(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }
