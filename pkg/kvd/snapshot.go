package kvd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Snapshot reads the whole store as of one version. The server keeps that version for it, so
// close it soon. Safe for concurrent use.
//
// The server grants a snapshot a lease, which the client renews until the snapshot is closed
// or reaches its MaxAge. Reads return ErrVersionGone after the lease has ended, after the
// server has restarted, or if the server took the snapshot from this client, which held the
// most, because it had none left for another client.
type Snapshot struct {
	client *Client
	id     uint64
	at     backend.ReadVersion
	lease  *lease
	closed atomic.Bool

	endsWithCommit bool // a commit that names it, and succeeds, releases it
}

var _ Reader = (*Snapshot)(nil)

// Snapshot returns a snapshot of the newest version, which includes every write acknowledged
// before the call. Close it. It takes Lease and MaxAge, and costs a round trip.
func (c *Client) Snapshot(ctx context.Context, opts ...TxnOption) (*Snapshot, error) {
	o, err := newTxnOptions(opts)
	if err != nil {
		return nil, &Error{Op: "snapshot", Err: err}
	}
	s, _, err := c.snapshot(ctx, &o, nil)
	return s, err
}

// snapshot returns a snapshot, and what it reads of key if the backend has read that already.
func (c *Client) snapshot(ctx context.Context, o *txnOptions, key []byte) (*Snapshot, *backend.Answer, error) {
	const name = "snapshot"
	in, err := c.enter(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer in.leave()
	begun, err := c.backend.BeginSnapshot(ctx, o.lease, key)
	if err != nil {
		return nil, nil, failed(name, err)
	}
	s := &Snapshot{client: c, id: begun.ID, at: backend.ReadVersion{Version: begun.Version, Epoch: begun.Epoch}, endsWithCommit: begun.EndsWithCommit}
	s.lease = newLease(c.open, begun.Lease, o.maxAge, func(ctx context.Context) (time.Duration, error) {
		return c.keepSnapshot(ctx, s.id, o.lease)
	})
	return s, begun.Read, nil
}

// View calls fn with a snapshot of the newest version and closes the snapshot. If the server
// has lost the snapshot, for example in a restart, and fn returns the ErrVersionGone of a
// read, View calls fn again with a newer snapshot; fn must then start over. View takes Lease,
// MaxAge and MaxAttempts. It returns other errors of fn unchanged.
func (c *Client) View(ctx context.Context, fn func(s *Snapshot) error, opts ...TxnOption) error {
	const name = "view"
	o, err := newTxnOptions(opts)
	switch {
	case err != nil:
		return &Error{Op: name, Err: err}
	case fn == nil:
		return nilFunc(name)
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
	s, _, err := c.snapshot(ctx, o, nil)
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

// Version is the version that the snapshot reads. While the snapshot is open, other reads may
// use it with AtVersion.
func (s *Snapshot) Version() uint64 { return s.at.Version }

// Close releases the snapshot. Scans of it that are still running may fail. Close is
// idempotent, does not wait for the server, and returns nil.
func (s *Snapshot) Close() error {
	if !s.closed.Swap(true) {
		s.lease.end()
		s.client.releaseSnapshot(s.id)
	}
	return nil
}

// committed ends the snapshot of a transaction that the server has committed.
func (s *Snapshot) committed() {
	if s.endsWithCommit && !s.closed.Swap(true) {
		s.lease.end()
	}
}

// Get is Client.Get at the version of the snapshot.
func (s *Snapshot) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	o, err := s.readOptions("get", opts)
	if err != nil {
		return nil, err
	}
	v, err := s.client.get(ctx, key, o)
	return v.Bytes, err
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
	o, err := collectScan(opts)
	if err == nil {
		err = s.check("scan", o.readOptions)
	}
	if err != nil {
		return failedScan(err)
	}
	s.readAt(&o.readOptions)
	return s.client.scan(ctx, r, o)
}

// readOptions are those of a read of the snapshot.
func (s *Snapshot) readOptions(op string, opts []ReadOption) (readOptions, error) {
	o, err := collectRead(op, opts)
	if err == nil {
		err = s.check(op, o)
	}
	s.readAt(&o)
	return o, err
}

// readAt has a read be at the version of the snapshot.
func (s *Snapshot) readAt(o *readOptions) { o.at = s.at }

func (s *Snapshot) check(op string, o readOptions) error {
	switch {
	case s.closed.Load():
		return &Error{Op: op, Err: ErrClosed, Message: "the snapshot was closed"}
	case o.at != (backend.ReadVersion{}):
		return &Error{Op: op, Err: errAtVersion}
	}
	return nil
}

var errAtVersion = fmt.Errorf("%w: snapshots and transactions read at versions of their own, and take neither AtVersion nor Stale nor MinVersion", ErrInvalid)

// keepSnapshot renews a lease.
func (c *Client) keepSnapshot(ctx context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	const name = "keep snapshot"
	in, err := c.enter(ctx, name)
	if err != nil {
		return 0, err
	}
	defer in.leave()
	granted, err := c.backend.KeepSnapshot(ctx, id, lease)
	return granted, failed(name, err)
}

// releaseSnapshot gives a snapshot back.
func (c *Client) releaseSnapshot(id uint64) {
	if in := c.calls.enter(); in != nil {
		defer in.leave()
		c.backend.ReleaseSnapshot(id)
	}
}
