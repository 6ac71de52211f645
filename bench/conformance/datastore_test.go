package conformance

import (
	"context"
	"errors"
	"iter"
	"path"
	"testing"

	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/query"
	dstest "github.com/ipfs/go-datastore/test"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// go-datastore's suite for the stores of IPFS. A fifth of its usual number of keys,
// the least that it allows: its combinations of queries put and delete them anew a
// thousand times.
func TestGoDatastore(t *testing.T) {
	dstest.ElemCount = 20
	dstest.SubtestAll(t, &dataStore{client: kvdtest.New(t)})
}

// dataStore is a client as go-datastore wants a store.
type dataStore struct{ client *kvd.Client }

var _ datastore.Batching = (*dataStore)(nil) // else the suite leaves batches out

func nameOf(key datastore.Key) []byte { return key.Bytes() }

func (s *dataStore) Get(ctx context.Context, key datastore.Key) ([]byte, error) {
	value, err := s.client.Get(ctx, nameOf(key))
	if errors.Is(err, kvd.ErrNotFound) {
		return nil, datastore.ErrNotFound
	}
	return value, err
}

func (s *dataStore) Has(ctx context.Context, key datastore.Key) (bool, error) {
	return datastore.GetBackedHas(ctx, s, key)
}

func (s *dataStore) GetSize(ctx context.Context, key datastore.Key) (int, error) {
	return datastore.GetBackedSize(ctx, s, key)
}

func (s *dataStore) Put(ctx context.Context, key datastore.Key, value []byte) error {
	return s.client.Put(ctx, nameOf(key), value)
}

func (s *dataStore) Delete(ctx context.Context, key datastore.Key) error {
	return s.client.Delete(ctx, nameOf(key))
}

// Sync has nothing to do: writes are synced unless asked otherwise.
func (s *dataStore) Sync(context.Context, datastore.Key) error { return nil }

func (s *dataStore) Close() error { return s.client.Close() }

// Query leaves prefix and order by key to the scan, and all else to go-datastore.
func (s *dataStore) Query(ctx context.Context, q query.Query) (query.Results, error) {
	r, rest := kvd.All(), q
	if prefix := path.Clean("/" + q.Prefix); prefix != "/" {
		r = kvd.Prefix([]byte(prefix + "/"))
	}
	rest.Prefix = ""
	var options []kvd.ScanOption
	if q.KeysOnly && !q.ReturnsSizes {
		options = append(options, kvd.KeysOnly())
	}
	if len(q.Orders) > 0 {
		switch q.Orders[0].(type) {
		case query.OrderByKey:
			rest.Orders = nil
		case query.OrderByKeyDescending:
			rest.Orders = nil
			options = append(options, kvd.Reverse())
		}
	}
	next, stop := iter.Pull2(s.client.Scan(ctx, r, options...))
	found := query.ResultsFromIterator(q, query.Iterator{
		Next: func() (query.Result, bool) {
			item, err, ok := next()
			entry := query.Entry{Key: string(item.Key), Size: len(item.Value)}
			if !q.KeysOnly {
				entry.Value = item.Value
			}
			return query.Result{Entry: entry, Error: err}, ok
		},
		Close: func() error { stop(); return nil },
	})
	return query.ResultsReplaceQuery(query.NaiveQueryApply(rest, found), q), nil
}

func (s *dataStore) Batch(context.Context) (datastore.Batch, error) {
	return &dataBatch{client: s.client}, nil
}

type dataBatch struct {
	client *kvd.Client
	batch  kvd.Batch
}

func (b *dataBatch) Put(_ context.Context, key datastore.Key, value []byte) error {
	b.batch.Put(nameOf(key), value)
	return nil
}

func (b *dataBatch) Delete(_ context.Context, key datastore.Key) error {
	b.batch.Delete(nameOf(key))
	return nil
}

func (b *dataBatch) Commit(ctx context.Context) error {
	if b.batch.Len() == 0 {
		return nil
	}
	_, err := b.client.Apply(ctx, &b.batch)
	return err
}
