package kvd

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Txn is an optimistic transaction. All its reads are of one version; it keeps its writes in memory.
// Commit applies them at one version, if nothing that the transaction read has been written
// since. The transaction sees its own writes, which have no version yet. Transactions are
// strictly serializable. The expiry of a key that was read counts as a write of it.
//
// Update and Transact run a transaction again after a conflict. A transaction from Begin must
// be ended with Commit or Discard. Not safe for concurrent use.
type Txn struct {
	client   *Client
	options  txnOptions
	snapshot *Snapshot  // nil until the first read, or the second one: see firstRead
	brief    bool       // the first read needs no snapshot
	first    *firstRead // nil: there is none without a snapshot
	changed  bool       // the transaction must not commit: see settle
	reads    readSet
	writes   overlay
	over     bool
	// committed is what Commit returned.
	committed uint64
}

var (
	_ Reader = (*Txn)(nil)
	_ Writer = (*Txn)(nil)
)

// Begin returns a transaction. It takes Lease and MaxAge. It does no I/O: the first read takes
// the snapshot.
func (c *Client) Begin(opts ...TxnOption) (*Txn, error) {
	o, err := newTxnOptions(opts)
	if err != nil {
		return nil, &Error{Op: "begin", Err: err}
	}
	return c.begin(&o), nil
}

func (c *Client) begin(o *txnOptions) *Txn { return &Txn{client: c, options: *o} }

// Version is the version that the transaction reads; 0 before its first read. The second read of
// an Update may raise it.
func (t *Txn) Version() uint64 {
	switch {
	case t.snapshot != nil:
		return t.snapshot.Version()
	case t.first != nil:
		return t.first.at.Version
	}
	return 0
}

// CommittedVersion is what Commit returned, or 0 if the transaction has not committed. Callers
// of Update and Transact get it from the last transaction that they were called with.
func (t *Txn) CommittedVersion() uint64 { return t.committed }

// Put sets key to value when the transaction commits. It copies both. It takes TTL, which
// counts from the commit, and a condition. The condition is evaluated at once, on what the
// transaction sees, and counts as a read. If it does not hold, Put returns ErrConflict, and the
// transaction continues without the write.
func (t *Txn) Put(ctx context.Context, key, value []byte, opts ...WriteOption) error {
	o, err := t.prepare(ctx, "put", key, opts, within)
	if err != nil {
		return err
	}
	t.writes.put(key, value, o.ttl)
	return nil
}

// Delete removes key when the transaction commits. It takes a condition, as Put does.
func (t *Txn) Delete(ctx context.Context, key []byte, opts ...WriteOption) error {
	if _, err := t.prepare(ctx, "delete", key, opts, within&^choseTTL); err != nil {
		return err
	}
	t.writes.delete(key)
	return nil
}

// DeleteRange removes every key of a range when the transaction commits, including keys that
// others write until then. Keys that the transaction puts later are kept. A range whose start
// is not below its end removes nothing. DeleteRange takes no options.
func (t *Txn) DeleteRange(_ context.Context, r Range, opts ...WriteOption) error {
	const name = "delete range"
	_, err := collect(opts, 0)
	if t.over {
		return errOver(name)
	}
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	t.writes.deleteRange(r)
	return nil
}

// prepare checks a write, and its condition, before it is recorded.
func (t *Txn) prepare(ctx context.Context, op string, key []byte, opts []WriteOption, takes choices) (writeOptions, error) {
	o, err := collect(opts, takes)
	if err := t.check(op, key); err != nil {
		return o, err
	}
	if err != nil {
		return o, &Error{Op: op, Err: err}
	}
	if o.condition.Kind == 0 {
		return o, nil
	}
	found, err := t.lookup(ctx, key, readOptions{})
	if err != nil {
		return o, err
	}
	if !holds(&o.condition, &found) {
		return o, conditionFailed(op, &o.condition, &found)
	}
	return o, nil
}

func conditionFailed(op string, c *backend.Condition, found *Lookup) error {
	e := &Error{Op: op, Reason: kvdpb.ReasonConditionFailed, Version: found.Version, Err: ErrConflict, Message: "the key is there"}
	switch {
	case !found.Found:
		e.Message = "the key is absent"
	case c.Kind == backend.VersionEquals:
		e.Message = fmt.Sprintf("the key has version %d, not %d", found.Version, c.Version)
	case c.Kind == backend.ValueEquals:
		e.Message = "the key has another value"
	}
	return e
}

func (t *Txn) check(op string, key []byte) error {
	switch {
	case t.over:
		return errOver(op)
	case len(key) == 0:
		return &Error{Op: op, Err: errEmptyKey}
	}
	return nil
}

func errOver(op string) error {
	return &Error{Op: op, Err: ErrClosed, Message: "the transaction was committed or discarded"}
}

// Commit applies the writes atomically, returns their version, and ends the transaction in any
// case. It takes Durable and Timed. A transaction without writes needs no call to the server:
// its reads were of one version, which Commit returns.
//
// Errors: ErrConflict if something that was read has been written since; ErrVersionGone if the
// snapshot ended too early or the server has restarted. After either a new transaction may
// succeed. ErrUncertain as for any write. ErrClosed if the transaction has ended.
func (t *Txn) Commit(ctx context.Context, opts ...WriteOption) (version uint64, err error) {
	const name = "commit"
	o, err := t.client.writeOptions(opts, ofCommit)
	if t.over {
		return 0, errOver(name)
	}
	defer t.Discard()
	if err != nil {
		return 0, &Error{Op: name, Err: err}
	}
	if t.changed {
		return 0, errChanged
	}
	if t.writes.empty() {
		t.committed = t.Version()
		return t.committed, nil
	}
	in, err := t.client.enter(ctx, name)
	if err != nil {
		return 0, err
	}
	defer in.leave()
	if version, err = t.client.backend.Commit(ctx, t.transaction(), o.backend()); err != nil {
		return 0, failed(name, err)
	}
	if t.snapshot != nil {
		t.snapshot.committed()
	}
	t.committed = version
	return version, nil
}

// transaction returns the request of a commit. It shares memory with t.
func (t *Txn) transaction() *backend.Transaction {
	txn := &backend.Transaction{Writes: t.writes.mutations(), Expiring: t.reads.expiring.keys()}
	txn.Keys, txn.Ranges = t.reads.reads()
	if t.first != nil {
		txn.At = t.first.at
	}
	if s := t.snapshot; s != nil {
		txn.At = s.at
		if s.endsWithCommit {
			txn.Snapshot = s.id
		}
	}
	return txn
}

// Discard ends the transaction without writing anything. After Commit it does nothing, so it
// can be deferred.
func (t *Txn) Discard() {
	t.over = true
	if t.snapshot != nil {
		_ = t.snapshot.Close() // never fails
	}
}

// begin returns the snapshot, taking it if there is none. Taking it may read a key, too, unless that
// is nil; then read is what the key holds.
func (t *Txn) begin(ctx context.Context, key []byte) (_ *Snapshot, read *backend.Answer, err error) {
	switch {
	case t.changed:
		return nil, nil, errChanged
	case t.first != nil:
		err = t.settle(ctx)
		return t.snapshot, nil, err
	case t.snapshot == nil:
		if t.snapshot, read, err = t.client.snapshot(ctx, &t.options, key); err != nil {
			return nil, nil, err
		}
	}
	return t.snapshot, read, nil
}

// lookup returns what the transaction sees of a key. The item has no key.
func (t *Txn) lookup(ctx context.Context, key []byte, o readOptions) (Lookup, error) {
	if found, written := t.writes.get(key); written {
		return found, nil
	}
	first := key
	if o.timings != nil {
		first = nil // the read is timed, so it is a call of its own
	} else if t.brief && t.snapshot == nil && t.first == nil {
		if found, ok, err := t.readFirst(ctx, key); ok || err != nil {
			return found, err
		}
	}
	s, read, err := t.begin(ctx, first)
	if err != nil {
		return Lookup{}, err
	}
	if err := t.reads.add(key); err != nil {
		return Lookup{}, &Error{Op: "get", Err: err}
	}
	if read != nil {
		t.reads.expiring.add(key, read.Value.TTL)
		return Lookup{Item: item(nil, read.Value), Found: read.Found}, nil
	}
	s.readAt(&o)
	v, err := t.client.get(ctx, key, o)
	t.reads.expiring.add(key, v.TTL)
	if errors.Is(err, ErrNotFound) {
		return Lookup{}, nil
	}
	return Lookup{Item: item(nil, v), Found: err == nil}, err
}
