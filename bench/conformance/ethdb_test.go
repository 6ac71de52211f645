package conformance

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/dbtest"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// go-ethereum's suite for the stores that it can keep its state in.
func TestGoEthereumKeyValueStore(t *testing.T) {
	dbtest.TestDatabaseSuite(t, func() ethdb.KeyValueStore {
		return &ethStore{client: kvdtest.New(t), ctx: t.Context()}
	})
}

// ethStore is a client as go-ethereum wants a store. The interface has no contexts,
// so the store keeps that of the test.
type ethStore struct {
	client *kvd.Client
	ctx    context.Context
}

// escape makes a key that kvd takes: kvd has no empty key, go-ethereum does. It puts
// a zero byte before the empty key and before every key that begins with one, which
// keeps the order of keys, and which key is a prefix of which.
func escape(key []byte) []byte {
	if len(key) == 0 || key[0] == 0 {
		return append([]byte{0}, key...)
	}
	return key
}

// unescape is the inverse of escape. It shares memory with key.
func unescape(key []byte) []byte {
	if len(key) > 0 && key[0] == 0 {
		return key[1:]
	}
	return key
}

// rangeOf is a range of go-ethereum, in which a nil bound means that there is none.
func rangeOf(start, end []byte) kvd.Range {
	r := kvd.All()
	if start != nil {
		r.Start = escape(start)
	}
	if end != nil {
		r.End = escape(end)
	}
	return r
}

func (s *ethStore) Has(key []byte) (bool, error) {
	_, err := s.Get(key)
	if errors.Is(err, kvd.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (s *ethStore) Get(key []byte) ([]byte, error)     { return s.client.Get(s.ctx, escape(key)) }
func (s *ethStore) Put(key, value []byte) error        { return s.client.Put(s.ctx, escape(key), value) }
func (s *ethStore) Delete(key []byte) error            { return s.client.Delete(s.ctx, escape(key)) }
func (s *ethStore) Stat() (string, error)              { return "", nil }
func (s *ethStore) SyncKeyValue() error                { return nil } // writes are synced unless asked otherwise
func (s *ethStore) Compact(start, limit []byte) error  { return nil } // the server does so by itself
func (s *ethStore) Close() error                       { return s.client.Close() }
func (s *ethStore) NewBatch() ethdb.Batch              { return &ethBatch{store: s} }
func (s *ethStore) NewBatchWithSize(_ int) ethdb.Batch { return s.NewBatch() }

func (s *ethStore) DeleteRange(start, end []byte) error {
	return s.client.DeleteRange(s.ctx, rangeOf(start, end))
}

func (s *ethStore) NewIterator(prefix, start []byte) ethdb.Iterator {
	r := kvd.All()
	if len(prefix) > 0 {
		r = kvd.Prefix(escape(prefix))
	}
	r.Start = escape(append(bytes.Clone(prefix), start...))
	next, stop := iter.Pull2(s.client.Scan(s.ctx, r))
	return &ethIterator{next: next, stop: stop}
}

type ethIterator struct {
	next func() (kvd.Item, error, bool)
	stop func()
	item kvd.Item
	err  error
}

func (i *ethIterator) Next() bool {
	item, err, ok := i.next()
	if err != nil {
		i.err = err
	}
	i.item = item
	return ok && err == nil
}

func (i *ethIterator) Error() error  { return i.err }
func (i *ethIterator) Key() []byte   { return unescape(i.item.Key) }
func (i *ethIterator) Value() []byte { return i.item.Value }
func (i *ethIterator) Release()      { i.stop() }

// ethBatch is an atomic batch that can also be replayed, one write after the other.
type ethBatch struct {
	store  *ethStore
	batch  kvd.Batch
	bytes  int
	replay []func(ethdb.KeyValueWriter) error
}

var errNoRangeDelete = errors.New("the target of the replay cannot delete a range")

// add notes a write, and how to repeat it.
func (b *ethBatch) add(bytes int, again func(ethdb.KeyValueWriter) error) error {
	b.bytes += bytes
	b.replay = append(b.replay, again)
	return nil
}

func (b *ethBatch) Put(key, value []byte) error {
	b.batch.Put(escape(key), value)
	return b.add(len(key)+len(value), func(w ethdb.KeyValueWriter) error { return w.Put(key, value) })
}

func (b *ethBatch) Delete(key []byte) error {
	b.batch.Delete(escape(key))
	return b.add(len(key), func(w ethdb.KeyValueWriter) error { return w.Delete(key) })
}

func (b *ethBatch) DeleteRange(start, end []byte) error {
	b.batch.DeleteRange(rangeOf(start, end))
	return b.add(len(start)+len(end), func(w ethdb.KeyValueWriter) error {
		if ranges, ok := w.(ethdb.KeyValueRangeDeleter); ok {
			return ranges.DeleteRange(start, end)
		}
		return errNoRangeDelete
	})
}

func (b *ethBatch) ValueSize() int { return b.bytes }

func (b *ethBatch) Write() error {
	if b.batch.Len() == 0 {
		return nil
	}
	_, err := b.store.client.Apply(b.store.ctx, &b.batch)
	return err
}

func (b *ethBatch) Reset() {
	b.batch.Reset()
	b.bytes, b.replay = 0, nil
}

func (b *ethBatch) Replay(w ethdb.KeyValueWriter) error {
	for _, again := range b.replay {
		if err := again(w); err != nil {
			return err
		}
	}
	return nil
}

func (b *ethBatch) Close() { b.Reset() }
