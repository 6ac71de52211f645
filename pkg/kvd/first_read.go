package kvd

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// firstRead is the only read of a transaction that has no snapshot yet: a Get of the newest version,
// which costs the server far less than a snapshot. At the commit the server checks that the key has
// not been written since, as it does for reads of a snapshot. A second read needs the state as of one
// version, so it takes the snapshot and reads the key there once more; if that has changed, the
// transaction is run again. Therefore only Update and Transact read so, and only in the first of
// several attempts.
type firstRead struct {
	key     []byte
	at      backend.ReadVersion
	version uint64 // of the item; 0: the key was absent
}

// habit predicts whether the next transaction of a client reads a single key. Safe for concurrent
// use.
type habit struct{ score atomic.Int32 }

// manyReads is how many transactions must read one key, after one that read more, until the next one
// begins without a snapshot. A wrong guess costs a Get and a round trip.
const manyReads = 64

// readsOne reports whether the next transaction is expected to read one key.
func (h *habit) readsOne() bool { return h.score.Load() >= 0 }

// tell is told of a transaction whether it read no more than one key.
func (h *habit) tell(one bool) {
	switch score := h.score.Load(); {
	case !one && score > -manyReads:
		h.score.Store(-manyReads)
	case one && score < 0:
		h.score.Add(1)
	}
}

// errChanged is why a transaction without a snapshot cannot read on.
var errChanged = &Error{
	Op: "get", Reason: kvdpb.ReasonConflict, Err: ErrConflict,
	Message: "the key that the transaction read first has been written since",
}

// readFirst performs the first read, without a snapshot. ok is false if the transaction has to take
// one.
func (t *Txn) readFirst(ctx context.Context, key []byte) (found Lookup, ok bool, err error) {
	const name = "get"
	in, err := t.client.enter(ctx, name)
	if err != nil {
		return Lookup{}, false, err
	}
	defer in.leave()
	a, err := t.client.backend.GetFirst(ctx, key, nil)
	switch {
	case err != nil:
		return Lookup{}, false, failed(name, err)
	case a.Epoch == 0 || a.Version == 0:
		return Lookup{}, false, nil
	case a.Value.TTL != 0: // its expiry is checked at the version of a snapshot
		t.client.habit.tell(false)
		return Lookup{}, false, nil
	}
	if err := t.reads.add(key); err != nil {
		return Lookup{}, false, &Error{Op: name, Err: err}
	}
	t.first = &firstRead{key: []byte(string(key)), at: backend.ReadVersion{Version: a.Version, Epoch: a.Epoch}, version: a.Value.Version}
	return Lookup{Item: item(nil, a.Value), Found: a.Found}, true, nil
}

// settle takes the snapshot of a transaction that has read a key without one. It fails if the key
// holds something else there.
func (t *Txn) settle(ctx context.Context) error {
	first := t.first
	t.client.habit.tell(false)
	s, read, err := t.client.snapshot(ctx, &t.options, first.key)
	if err != nil {
		return err
	}
	if read == nil {
		v, err := t.client.get(ctx, first.key, readOptions{at: s.at})
		if err != nil && !errors.Is(err, ErrNotFound) {
			_ = s.Close() // never fails
			return err
		}
		read = &backend.Answer{Value: v}
	}
	t.first, t.snapshot = nil, s
	if s.at.Epoch != first.at.Epoch || read.Value.Version != first.version {
		t.changed = true
		return errChanged
	}
	return nil
}
