package kvdtest

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// The limits that Conformance expects.
const (
	keyBytes   = 4 << 10
	valueBytes = 4 << 20
	batchOps   = 4096
	batchBytes = 8 << 20
)

// manyOps is more than one frame or batch takes.
var manyOps = batchOps + batchOps/5

var limitCases = []conformanceCase{
	{"the longest key and the largest value", func(s *suite) {
		k, v := filled(keyBytes, 'k'), filled(valueBytes, 'v')
		s.ok(s.Put(s.ctx(), k, v))
		s.equal(len(s.get(s, string(k))), valueBytes)
		s.ok(s.Delete(s.ctx(), k))
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"a key that is too long", func(s *suite) {
		k := filled(keyBytes+1, 'k')
		_, err := s.Get(s.ctx(), k)
		s.is(err, kvd.ErrTooLarge)
		_, err = s.GetMany(s.ctx(), [][]byte{k})
		s.is(err, kvd.ErrTooLarge)
		s.is(s.Put(s.ctx(), k, nil), kvd.ErrTooLarge)
		s.is(s.Delete(s.ctx(), k), kvd.ErrTooLarge)
		s.is(s.DeleteRange(s.ctx(), kvd.Between(k, nil)), kvd.ErrTooLarge)
		s.is(s.scanError(s, kvd.Between(k, nil)), kvd.ErrTooLarge)
		_, err = s.Apply(s.ctx(), new(kvd.Batch).Put(k, nil))
		s.is(err, kvd.ErrTooLarge)
		_, err = s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Key: k, Condition: kvd.IfAbsent()}}})
		s.is(err, kvd.ErrTooLarge)
	}},
	{"a value that is too large", func(s *suite) {
		v := filled(valueBytes+1, 'v')
		for _, err := range []error{
			s.Put(s.ctx(), []byte("k"), v),
			s.Put(s.ctx(), []byte("k"), nil, kvd.IfValue(v)),
			s.Update(s.ctx(), func(tx *kvd.Txn) error { return tx.Put(s.ctx(), []byte("k"), v) }),
		} {
			s.is(err, kvd.ErrTooLarge)
			s.that(!errors.Is(err, kvd.ErrUncertain), "it was not written: %v", err)
		}
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"a batch of too many operations", func(s *suite) {
		b := new(kvd.Batch)
		for i := range batchOps {
			b.Put(key("k%d", i), nil)
		}
		_, err := s.Apply(s.ctx(), b)
		s.ok(err)
		_, err = s.Apply(s.ctx(), b.Put([]byte("one more"), nil))
		s.is(err, kvd.ErrTooLarge)
		s.equal(s.get(s, "one more"), absent)
	}},
	{"a batch of too many bytes", func(s *suite) {
		b := new(kvd.Batch)
		for i := range batchBytes / (1 << 20) {
			b.Put(key("k%d", i), filled(1<<20, 'v'))
		}
		_, err := s.Apply(s.ctx(), b)
		s.is(err, kvd.ErrTooLarge)
		s.equal(s.all(s, kvd.All(), kvd.KeysOnly()), "")
	}},
	{"an answer of too many keys or bytes", func(s *suite) {
		keys := make([][]byte, 3)
		for i := range keys {
			keys[i] = key("k%d", i)
			s.ok(s.Put(s.ctx(), keys[i], filled(batchBytes/2-batchBytes/8, 'v')))
		}
		_, err := s.GetMany(s.ctx(), keys)
		s.is(err, kvd.ErrTooLarge)
		found, err := s.GetMany(s.ctx(), keys[:2])
		s.ok(err)
		s.equal(len(found), 2)
		many := make([][]byte, batchOps+1)
		for i := range many {
			many[i] = key("x%d", i)
		}
		_, err = s.GetMany(s.ctx(), many)
		s.is(err, kvd.ErrTooLarge)
		found, err = s.GetMany(s.ctx(), many[1:])
		s.ok(err)
		s.equal(len(found), batchOps)
	}},
}

var lifetimeCases = []conformanceCase{
	{"it answers a ping", func(s *suite) { s.ok(s.Ping(s.ctx())) }},
	{"a context that has ended ends every call", func(s *suite) {
		s.put("k", "v")
		expired, cancel := context.WithDeadline(s.ctx(), time.Now().Add(-time.Second))
		defer cancel()
		for name, call := range s.storeCalls() {
			err := call(s.ended())
			s.that(errors.Is(err, context.Canceled) && !errors.Is(err, kvd.ErrUncertain), "%s: %v", name, err)
			err = call(expired)
			s.that(errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, kvd.ErrUncertain), "%s: %v", name, err)
		}
		s.equal(s.all(s, kvd.All()), "k=v")
	}},
	{"nothing goes on after Close", func(s *suite) {
		snapshot, err := s.Snapshot(s.ctx())
		s.ok(err)
		tx := s.begin()
		s.ok(tx.Put(s.ctx(), []byte("k"), nil))
		s.ok(s.Close())
		s.ok(s.Close())
		for name, call := range s.storeCalls() {
			err := call(s.ctx())
			s.that(errors.Is(err, kvd.ErrClosed), "%s: %v", name, err)
		}
		_, err = snapshot.Get(s.ctx(), []byte("k"))
		s.is(err, kvd.ErrClosed)
		s.ok(snapshot.Close())
		_, err = tx.Commit(s.ctx())
		s.is(err, kvd.ErrClosed)
	}},
	{"close waits for calls under way", func(s *suite) {
		s.letters()
		closed := make(chan error, 1)
		items := 0
		for _, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			if items++; items == 1 {
				go func() { closed <- s.Close() }()
				for s.Ping(s.ctx()) == nil { // it has not begun
					time.Sleep(time.Millisecond)
				}
			}
		}
		s.equal(items, 5)
		s.ok(<-closed)
	}},
}
