package kvd

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Get is Client.Get of what the transaction sees.
func (t *Txn) Get(ctx context.Context, key []byte, opts ...ReadOption) ([]byte, error) {
	item, err := t.GetItem(ctx, key, opts...)
	return item.Value, err
}

// GetItem is Client.GetItem of what the transaction sees. Its own writes have version 0.
func (t *Txn) GetItem(ctx context.Context, key []byte, opts ...ReadOption) (Item, error) {
	const name = "get"
	o, err := collectRead(name, opts)
	if err == nil {
		err = t.check(name, key)
	}
	if err != nil {
		return Item{}, err
	}
	if o.at != (backend.ReadVersion{}) {
		return Item{}, &Error{Op: name, Err: errAtVersion}
	}
	found, err := t.lookup(ctx, key, o)
	switch {
	case err != nil:
		return Item{}, err
	case !found.Found:
		return Item{}, &Error{Op: name, Reason: kvdpb.ReasonKeyNotFound, Err: ErrNotFound}
	}
	found.Key = bytes.Clone(key)
	return found.Item, nil
}

// GetMany is Client.GetMany of what the transaction sees.
func (t *Txn) GetMany(ctx context.Context, keys [][]byte, opts ...ReadOption) ([]Lookup, error) {
	const name = "get many"
	o, err := collectRead(name, opts)
	switch {
	case t.over:
		return nil, errOver(name)
	case err != nil:
		return nil, err
	}
	if o.at != (backend.ReadVersion{}) {
		return nil, &Error{Op: name, Err: errAtVersion}
	}
	found := make([]Lookup, len(keys))
	var stored [][]byte // the keys to read from the snapshot
	var places []int    // their indexes in keys
	for i, key := range keys {
		if err := t.check(name, key); err != nil {
			return nil, err
		}
		l, written := t.writes.get(key)
		if !written {
			stored, places = append(stored, key), append(places, i)
			continue
		}
		l.Key = bytes.Clone(key)
		found[i] = l
	}
	if len(stored) == 0 {
		return found, nil
	}
	s, _, err := t.begin(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := t.reads.add(stored...); err != nil {
		return nil, &Error{Op: name, Err: err}
	}
	s.readAt(&o)
	lookups, err := t.client.getMany(ctx, stored, o)
	if err != nil {
		return nil, err
	}
	for i, l := range lookups {
		t.reads.expiring.add(stored[i], l.TTL)
		found[places[i]] = l
	}
	return found, nil
}

// Scan is Client.Scan of what the transaction sees when the loop begins; writes that the loop
// makes are not in it. A loop that is left early, or ends at a Limit, has read the range only up
// to the last item that it got.
func (t *Txn) Scan(ctx context.Context, r Range, opts ...ScanOption) iter.Seq2[Item, error] {
	o, err := collectScan(opts)
	if err != nil {
		return failedScan(err)
	}
	r = r.clone()
	return func(yield func(Item, error) bool) {
		if err := t.scan(ctx, r, o, yield); err != nil {
			yield(Item{}, err)
		}
	}
}

// scan calls yield for each item. It returns an error that is still to be yielded.
func (t *Txn) scan(ctx context.Context, r Range, o scanOptions, yield func(Item, error) bool) error {
	const name = "scan"
	if t.over {
		return errOver(name)
	}
	if o.at != (backend.ReadVersion{}) {
		return &Error{Op: name, Err: errAtVersion}
	}
	read, err := t.reads.addScan(r, o.reverse)
	if err != nil {
		return &Error{Op: name, Err: err}
	}
	s, _, err := t.begin(ctx, nil)
	if err != nil {
		return err
	}
	m := scanMerge{
		txn: t, read: read, o: o, yield: yield,
		own: t.writes.within(r, o.reverse), hidden: slices.Clip(t.writes.ranges),
	}
	return m.run(t.client.scan(ctx, r, m.stored(s)))
}

// scanMerge merges the writes of a transaction into a scan of its snapshot.
type scanMerge struct {
	txn     *Txn
	read    *scanned
	o       scanOptions
	own     []*overlayWrite // not yet yielded, in the order of the scan
	hidden  ranges          // deleted by the transaction
	yield   func(Item, error) bool
	yielded uint64
	err     error // why the scan cannot go on
}

// stored returns the options of the scan of the snapshot. Each write of the transaction hides
// at most one item of that scan, a range delete any number.
func (m *scanMerge) stored(s *Snapshot) scanOptions {
	o := m.o
	o.borrow = false // the transaction remembers keys that it has read
	s.readAt(&o.readOptions)
	if o.limit > 0 {
		o.limit += uint64(len(m.own))
	}
	if len(m.hidden) > 0 {
		o.limit = 0
	}
	return o
}

func (m *scanMerge) run(stored iter.Seq2[Item, error]) error {
	for item, err := range stored {
		if err != nil {
			return err
		}
		if !m.ownBefore(item.Key) {
			return m.err
		}
		switch {
		case len(m.own) > 0 && m.own[0].key == string(item.Key):
			if !m.next() {
				return m.err
			}
		case !m.hidden.contain(item.Key):
			if !m.emit(item, true) {
				return m.err
			}
		}
	}
	for len(m.own) > 0 {
		if !m.next() {
			return m.err
		}
	}
	m.read.done = true
	return nil
}

// ownBefore yields the transaction's writes before key. Like the methods below it returns false
// if the loop has ended.
func (m *scanMerge) ownBefore(key []byte) bool {
	for len(m.own) > 0 {
		order := strings.Compare(m.own[0].key, string(key))
		if m.o.reverse {
			order = -order
		}
		if order >= 0 {
			break
		}
		if !m.next() {
			return false
		}
	}
	return true
}

// next yields the transaction's next write, if it is a put.
func (m *scanMerge) next() bool {
	w := m.own[0]
	m.own = m.own[1:]
	if w.deleted {
		return true
	}
	item := w.lookup().Item
	item.Key = []byte(w.key)
	if m.o.keysOnly {
		item.Value = nil
	}
	return m.emit(item, false)
}

// emit records that the loop knows the range up to the item, and yields the item.
func (m *scanMerge) emit(item Item, stored bool) bool {
	if m.txn.over {
		m.err = errOver("scan")
		return false
	}
	m.read.upto(item.Key, stored)
	if stored {
		m.txn.reads.expiring.add(item.Key, item.TTL)
	}
	m.yielded++
	return m.yield(item, nil) && m.yielded != m.o.limit
}
