package kvdtest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd"
)

var timingCases = []conformanceCase{
	{"a call that is refused shows no earlier call's times", func(s *suite) {
		for _, c := range slices.Sorted(maps.Keys(s.refusedTimed())) {
			t := kvd.Timings{ClientQueue: time.Hour, Sync: time.Hour, Attempts: 9, FrameOps: 9}
			err := s.refusedTimed()[c](kvd.Timed(&t))
			if err == nil {
				s.Errorf("%s: it is not refused", c)
			}
			if t.Total() >= time.Hour || t.Attempts == 9 || t.FrameOps == 9 {
				s.Errorf("%s: times of an earlier call: %+v", c, t)
			}
		}
	}},
	{"a commit without writes shows no earlier call's times", func(s *suite) {
		t := kvd.Timings{Sync: time.Hour, Attempts: 9}
		tx, err := s.Begin()
		s.ok(err)
		_, err = tx.Commit(s.ctx(), kvd.Timed(&t))
		s.ok(err)
		s.equal(t, kvd.Timings{})
	}},
	{"an operation of a pipeline shows no times of a call between it and Do", func(s *suite) {
		var t kvd.Timings
		p := s.Pipeline()
		p.Get(key("k"), kvd.Timed(&t))
		s.ok(s.Put(s.ctx(), key("k"), nil, kvd.Timed(&t)))
		s.that(p.Do(s.ended()) != nil, "the context has ended")
		s.equal(t, kvd.Timings{})
	}},
}

// refusedTimed are calls with an option that the store refuses, by the reason.
func (s *suite) refusedTimed() map[string]func(kvd.CallOption) error {
	k, long := key("k"), filled(keyBytes+1, 'k')
	future := kvd.AtVersion(1 << 63)
	read := func(_ any, err error) error { return err }
	all := map[string]func(kvd.CallOption) error{
		"get of an empty key":      func(o kvd.CallOption) error { return read(s.Get(s.ctx(), nil, o)) },
		"get of a long key":        func(o kvd.CallOption) error { return read(s.Get(s.ctx(), long, o)) },
		"get at no version":        func(o kvd.CallOption) error { return read(s.Get(s.ctx(), k, o, future)) },
		"get, context ended":       func(o kvd.CallOption) error { return read(s.Get(s.ended(), k, o)) },
		"get item of an empty key": func(o kvd.CallOption) error { return read(s.GetItem(s.ctx(), nil, o)) },
		"get many of an empty key": func(o kvd.CallOption) error { return read(s.GetMany(s.ctx(), [][]byte{nil}, o)) },
		"get many of a long key":   func(o kvd.CallOption) error { return read(s.GetMany(s.ctx(), [][]byte{long}, o)) },
		"get many at no version":   func(o kvd.CallOption) error { return read(s.GetMany(s.ctx(), [][]byte{k}, o, future)) },
		"put of an empty key":      func(o kvd.CallOption) error { return s.Put(s.ctx(), nil, nil, o) },
		"put, context ended":       func(o kvd.CallOption) error { return s.Put(s.ended(), k, nil, o) },
		"put with a bad TTL":       func(o kvd.CallOption) error { return s.Put(s.ctx(), k, nil, o, kvd.TTL(-1)) },
		"put with a bad TTL first": func(o kvd.CallOption) error { return s.Put(s.ctx(), k, nil, kvd.TTL(-1), o) },
		"put of two conditions":    func(o kvd.CallOption) error { return s.Put(s.ctx(), k, nil, o, kvd.IfAbsent(), kvd.IfAbsent()) },
		"put of a long key":        func(o kvd.CallOption) error { return s.Put(s.ctx(), long, nil, o) },
		"put that conflicts":       func(o kvd.CallOption) error { return s.Put(s.ctx(), k, nil, o, kvd.IfPresent()) },
		"put item, bad durability": func(o kvd.CallOption) error { return read(s.PutItem(s.ctx(), k, nil, o, kvd.Durable(9))) },
		"delete with a TTL":        func(o kvd.CallOption) error { return s.Delete(s.ctx(), k, o, kvd.TTL(1)) },
		"delete item with a TTL":   func(o kvd.CallOption) error { return read(s.DeleteItem(s.ctx(), k, o, kvd.TTL(1))) },
		"delete range with a TTL":  func(o kvd.CallOption) error { return s.DeleteRange(s.ctx(), kvd.All(), o, kvd.TTL(1)) },
		"apply of nothing":         func(o kvd.CallOption) error { return read(s.Apply(s.ctx(), new(kvd.Batch), o)) },
		"apply of an empty key":    func(o kvd.CallOption) error { return read(s.Apply(s.ctx(), new(kvd.Batch).Put(nil, nil), o)) },
		"apply of a long key":      func(o kvd.CallOption) error { return read(s.Apply(s.ctx(), new(kvd.Batch).Put(long, nil), o)) },
		"apply with a TTL":         func(o kvd.CallOption) error { return read(s.Apply(s.ctx(), new(kvd.Batch).Put(k, nil), o, kvd.TTL(1))) },
		"execute without a condition": func(o kvd.CallOption) error {
			return read(s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Key: k}}}, o))
		},
		"execute with a long key": func(o kvd.CallOption) error {
			return read(s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Key: long, Condition: kvd.IfAbsent()}}}, o))
		},
		"execute with a TTL": func(o kvd.CallOption) error { return read(s.Execute(s.ctx(), kvd.Execution{}, o, kvd.TTL(1))) },
		"update whose function fails": func(o kvd.CallOption) error {
			return s.Update(s.ctx(), func(*kvd.Txn) error { return errors.New("no") }, kvd.CommitWith(o))
		},
		"update with a bad lease": func(o kvd.CallOption) error {
			return s.Update(s.ctx(), func(*kvd.Txn) error { return nil }, kvd.CommitWith(o), kvd.Lease(-1))
		},
	}
	maps.Copy(all, s.refusedTimedPipeline())
	maps.Copy(all, s.refusedTimedTxn())
	return all
}

// refusedTimedPipeline are those of refusedTimed that a pipeline makes.
func (s *suite) refusedTimedPipeline() map[string]func(kvd.CallOption) error {
	k, long := key("k"), filled(keyBytes+1, 'k')
	do := func(queue func(p *kvd.Pipeline, o kvd.CallOption)) func(kvd.CallOption) error {
		return func(o kvd.CallOption) error {
			p := s.Pipeline()
			queue(p, o)
			return p.Do(s.ctx())
		}
	}
	return map[string]func(kvd.CallOption) error{
		"pipeline, get of an empty key": do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Get(nil, o) }),
		"pipeline, get of a long key":   do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Get(long, o) }),
		"pipeline, get at no version":   do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Get(k, o, kvd.AtVersion(1<<63)) }),
		"pipeline, put of an empty key": do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Put(nil, nil, o) }),
		"pipeline, put of a long key":   do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Put(long, nil, o) }),
		"pipeline, put with a bad TTL":  do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Put(k, nil, o, kvd.TTL(-1)) }),
		"pipeline, delete with a TTL":   do(func(p *kvd.Pipeline, o kvd.CallOption) { p.Delete(k, o, kvd.TTL(1)) }),
		"pipeline, context ended": func(o kvd.CallOption) error {
			p := s.Pipeline()
			p.Get(k, o)
			return p.Do(s.ended())
		},
	}
}

// refusedTimedTxn are those of refusedTimed that a snapshot or a transaction makes.
func (s *suite) refusedTimedTxn() map[string]func(kvd.CallOption) error {
	k := key("k")
	read := func(_ any, err error) error { return err }
	all := make(map[string]func(kvd.CallOption) error)
	onTxn := func(name string, over bool, call func(tx *kvd.Txn, o kvd.CallOption) error) {
		all[name] = func(o kvd.CallOption) error {
			tx, err := s.Begin()
			s.ok(err)
			defer tx.Discard()
			if over {
				tx.Discard()
			}
			return call(tx, o)
		}
	}
	onReader := func(name string, r func() kvd.Reader) {
		all[name+" get"] = func(o kvd.CallOption) error { return read(r().Get(s.ctx(), k, o, kvd.AtVersion(1))) }
		all[name+" get item"] = func(o kvd.CallOption) error { return read(r().GetItem(s.ctx(), k, o, kvd.AtVersion(1))) }
		all[name+" get many"] = func(o kvd.CallOption) error { return read(r().GetMany(s.ctx(), [][]byte{k}, o, kvd.AtVersion(1))) }
	}
	snapshot, err := s.Snapshot(s.ctx())
	s.ok(err)
	defer func() { s.ok(snapshot.Close()) }()
	onReader("snapshot", func() kvd.Reader { return snapshot })
	for _, over := range []bool{false, true} {
		name := map[bool]string{false: "transaction", true: "transaction that is over,"}[over]
		onTxn(name+" get", over, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.Get(s.ctx(), k, o, kvd.AtVersion(1))) })
		onTxn(name+" get of an empty key", over, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.Get(s.ctx(), nil, o)) })
		onTxn(name+" get many", over, func(tx *kvd.Txn, o kvd.CallOption) error {
			return read(tx.GetMany(s.ctx(), [][]byte{k}, o, kvd.AtVersion(1)))
		})
		onTxn(name+" get many of an empty key", over, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.GetMany(s.ctx(), [][]byte{nil}, o)) })
		onTxn(name+" put", over, func(tx *kvd.Txn, o kvd.CallOption) error { return tx.Put(s.ctx(), k, nil, o) })
		onTxn(name+" delete range", over, func(tx *kvd.Txn, o kvd.CallOption) error { return tx.DeleteRange(s.ctx(), kvd.All(), o) })
		onTxn(name+" commit with a TTL", over, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.Commit(s.ctx(), o, kvd.TTL(1))) })
		onTxn(name+" get, context ended", over, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.Get(s.ended(), k, o)) })
	}
	onTxn("commit of a transaction that is over", true, func(tx *kvd.Txn, o kvd.CallOption) error { return read(tx.Commit(s.ctx(), o)) })
	onTxn("commit, context ended", false, func(tx *kvd.Txn, o kvd.CallOption) error {
		s.ok(tx.Put(s.ctx(), k, nil))
		return read(tx.Commit(s.ended(), o))
	})
	return all
}
