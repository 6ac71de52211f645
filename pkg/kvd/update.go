package kvd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Update runs fn in a transaction and commits it. If the transaction conflicts with another
// write, or the server has lost its snapshot, Update runs fn again on newer data, so fn should
// have no effects other than through tx. Update takes all options of transactions.
//
// If fn returns an error, nothing is written and Update returns that error; this includes the
// ErrConflict of a condition that did not hold. If the last attempt conflicts too, Update
// returns ErrConflict with the number of attempts; the error also matches that of ctx if ctx
// ended first. Other errors are those of Txn.Commit.
func (c *Client) Update(ctx context.Context, fn func(tx *Txn) error, opts ...TxnOption) error {
	const name = "update"
	o, err := newTxnOptions(opts)
	switch {
	case err != nil:
		return &Error{Op: name, Err: err}
	case fn == nil:
		return nilFunc(name)
	}
	for attempt := 1; ; attempt++ {
		tx := c.begin(&o)
		tx.brief = attempt == 1 && o.maxAttempts > 1 && c.habit.readsOne()
		again, err := updateOnce(ctx, tx, fn)
		if !again {
			return err
		}
		if err := o.again(ctx, name, attempt, err); err != nil {
			return err
		}
	}
}

// Transact is Update with a result, and a thin form of it: it returns what fn returned in the
// attempt that committed.
func Transact[T any](ctx context.Context, s Store, fn func(tx *Txn) (T, error), opts ...TxnOption) (T, error) {
	var result, none T
	switch {
	case s == nil:
		return none, &Error{Op: "update", Err: fmt.Errorf("%w: the store is nil; pass one that Open has returned", ErrInvalid)}
	case fn == nil:
		return none, nilFunc("update")
	}
	err := s.Update(ctx, func(tx *Txn) (err error) {
		result, err = fn(tx)
		return err
	}, opts...)
	if err != nil {
		return none, err
	}
	return result, nil
}

// updateOnce runs fn in a transaction and commits it. After an error, again reports whether a
// new transaction may succeed.
func updateOnce(ctx context.Context, tx *Txn, fn func(tx *Txn) error) (again bool, err error) {
	defer tx.Discard()
	if err := fn(tx); err != nil {
		return tx.lost(err), err
	}
	tx.client.habit.tell(tx.reads.len() <= 1)
	_, err = tx.Commit(ctx, tx.options.commit...)
	conflict := errors.Is(err, ErrConflict) || tx.lost(err)
	return conflict && !errors.Is(err, ErrUncertain), err
}

// lost reports whether a new transaction may succeed after an error: Snapshot.lost of the snapshot.
// Without a snapshot, what was read is checked for a while only.
func (t *Txn) lost(err error) bool {
	switch {
	case t.changed:
		return true
	case t.first != nil && errors.Is(err, ErrVersionGone):
		t.client.habit.tell(false)
		return true
	}
	return t.snapshot != nil && t.snapshot.lost(err)
}

const (
	// A conflict ends when the other transaction has committed, so the waits are short:
	// a random time up to conflictBase * 2^n.
	conflictBase = time.Millisecond
	conflictMax  = 250 * time.Millisecond
)

// again waits and returns nil if a transaction or view should run again after its n-th attempt;
// otherwise it returns the error of the call.
func (o *txnOptions) again(ctx context.Context, op string, n int, cause error) error {
	err := ctx.Err()
	if err == nil && n < o.maxAttempts {
		if err = backend.Pause(ctx, rand.N(min(conflictBase<<min(n, 16), conflictMax))); err == nil {
			return nil
		}
	}
	e := Error{Op: op, Err: cause}
	if last, ok := errors.AsType[*Error](cause); ok {
		e = *last
		e.Op = op
	}
	e.Attempts = n
	if err != nil {
		e.Err = fmt.Errorf("%w: %w", err, e.Err)
	}
	return &e
}
