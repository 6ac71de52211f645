package kvdtest

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func key(format string, args ...any) []byte { return fmt.Appendf(nil, format, args...) }

var batchCases = []conformanceCase{
	{"all writes have one version", func(s *suite) {
		s.put("c", "0")
		version, err := s.Apply(s.ctx(), new(kvd.Batch).Put(key("a"), key("1")).Put(key("b"), key("2")).Delete(key("c")))
		s.ok(err)
		s.equal(s.all(s, kvd.All()), "a=1 b=2")
		s.equal(s.item(s, "a").Version, version)
		s.equal(s.item(s, "b").Version, version)
	}},
	{"the last write of a key counts", func(s *suite) {
		s.put("x/old", "0")
		_, err := s.Apply(s.ctx(), new(kvd.Batch).
			Put(key("a"), key("1")).Put(key("a"), key("2")).
			Put(key("x/lost"), nil).DeleteRange(kvd.Prefix(key("x/"))).Put(key("x/new"), key("3")).
			Put(key("b"), nil).Delete(key("b")))
		s.ok(err)
		s.equal(s.all(s, kvd.All()), "a=2 x/new=3")
	}},
	{"conditions are evaluated on the state before", func(s *suite) {
		s.put("a", "1")
		_, err := s.Apply(s.ctx(), new(kvd.Batch).Put(key("b"), nil).Delete(key("b"), kvd.IfPresent()))
		s.is(err, kvd.ErrConflict)
		_, err = s.Apply(s.ctx(), new(kvd.Batch).Put(key("a"), key("2"), kvd.IfValue(key("1"))).Put(key("b"), key("3"), kvd.IfAbsent()))
		s.ok(err)
		s.equal(s.all(s, kvd.All()), "a=2 b=3")
	}},
	{"one condition that fails stops all", func(s *suite) {
		s.put("a", "1")
		e := kvd.Error{}
		_, err := s.Apply(s.ctx(), new(kvd.Batch).Put(key("b"), nil).Put(key("c"), nil, kvd.IfAbsent()).Put(key("a"), nil, kvd.IfAbsent()))
		e = *s.is(err, kvd.ErrConflict)
		s.equal(e.Reason, "CONDITION_FAILED")
		s.equal(s.all(s, kvd.All()), "a=1")
	}},
	{"an empty batch and one that makes no sense are ErrInvalid", func(s *suite) {
		_, err := s.Apply(s.ctx(), new(kvd.Batch))
		s.is(err, kvd.ErrInvalid)
		_, err = s.Apply(s.ctx(), new(kvd.Batch).Put(key("a"), nil).Put(nil, nil))
		s.is(err, kvd.ErrInvalid)
		_, err = s.Apply(s.ctx(), new(kvd.Batch).Put(key("a"), nil, kvd.Durable(kvd.Sync)))
		s.is(err, kvd.ErrInvalid)
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"a batch may be applied again", func(s *suite) {
		b := new(kvd.Batch).Put(key("a"), key("1")).Put(key("a"), key("2")).DeleteRange(kvd.Prefix(key("b")))
		first, err := s.Apply(s.ctx(), b)
		s.ok(err)
		s.put("a", "3", "b", "4")
		second, err := s.Apply(s.ctx(), b)
		s.ok(err)
		s.that(first < second, "%d < %d", first, second)
		s.equal(s.all(s, kvd.All()), "a=2")
		s.equal(b.Len(), 3)
	}},
	{"a batch is seen whole or not at all", func(s *suite) {
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				b := new(kvd.Batch)
				for n := range 5 {
					b.Put(key("k%d", n), key("%d", i))
				}
				if _, err := s.Apply(s.ctx(), b, kvd.Durable(kvd.Memory)); err != nil {
					done <- err
					return
				}
			}
		}()
		keys := [][]byte{key("k0"), key("k1"), key("k2"), key("k3"), key("k4")}
		for range 50 {
			found, err := s.GetMany(s.ctx(), keys)
			s.ok(err)
			scanned := 0
			version := uint64(0)
			for item, err := range s.Scan(s.ctx(), kvd.All()) {
				s.ok(err)
				s.that(scanned == 0 || item.Version == version, "a scan sees one batch")
				scanned, version = scanned+1, item.Version
			}
			s.that(scanned == 0 || scanned == 5, "a scan sees all of it: %d", scanned)
			for _, l := range found {
				s.equal(l.Version, found[0].Version)
			}
		}
		close(stop)
		s.ok(<-done)
	}},
}

var executeCases = []conformanceCase{
	{"then if all guards hold, else otherwise", func(s *suite) {
		s.put("a", "1")
		e := kvd.Execution{
			If:   []kvd.Guard{{Key: key("a"), Condition: kvd.IfValue(key("1"))}, {Key: key("b"), Condition: kvd.IfAbsent()}},
			Then: new(kvd.Batch).Put(key("b"), key("then")),
			Else: new(kvd.Batch).Put(key("c"), key("else")),
		}
		r, err := s.Execute(s.ctx(), e)
		s.ok(err)
		s.that(r.Succeeded && r.Version == s.item(s, "b").Version, "then was applied: %+v", r)
		r, err = s.Execute(s.ctx(), e)
		s.ok(err)
		s.that(!r.Succeeded && r.Version == s.item(s, "c").Version, "else was applied: %+v", r)
		s.equal(s.all(s, kvd.All()), "a=1 b=then c=else")
	}},
	{"an empty branch only looks", func(s *suite) {
		s.put("a", "1")
		r, err := s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Key: key("a"), Condition: kvd.IfPresent()}}, Else: new(kvd.Batch).Put(key("b"), nil)})
		s.ok(err)
		s.that(r.Succeeded && r.Version >= s.item(s, "a").Version, "it looked: %+v", r)
		s.equal(s.all(s, kvd.All()), "a=1")
	}},
	{"guards without a condition and conditions in a branch are ErrInvalid", func(s *suite) {
		_, err := s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Key: key("a")}}})
		s.is(err, kvd.ErrInvalid)
		_, err = s.Execute(s.ctx(), kvd.Execution{Then: new(kvd.Batch).Put(key("a"), nil, kvd.IfAbsent())})
		s.is(err, kvd.ErrInvalid)
		_, err = s.Execute(s.ctx(), kvd.Execution{If: []kvd.Guard{{Condition: kvd.IfAbsent()}}})
		s.is(err, kvd.ErrInvalid)
	}},
	{"no increment is lost", func(s *suite) {
		const adders, times = 4, 20
		s.put("n", "0")
		done := make(chan error, adders)
		for range adders {
			go func() {
				for range times {
					for {
						item, err := s.GetItem(s.ctx(), key("n"))
						if err != nil {
							done <- err
							return
						}
						n := 0
						if _, err := fmt.Sscan(string(item.Value), &n); err != nil {
							done <- err
							return
						}
						r, err := s.Execute(s.ctx(), kvd.Execution{
							If:   []kvd.Guard{{Key: key("n"), Condition: kvd.IfVersion(item.Version)}},
							Then: new(kvd.Batch).Put(key("n"), key("%d", n+1)),
						}, kvd.Durable(kvd.Memory))
						if err != nil && !errors.Is(err, kvd.ErrConflict) {
							done <- err
							return
						}
						if err == nil && r.Succeeded {
							break
						}
					}
				}
				done <- nil
			}()
		}
		for range adders {
			s.ok(<-done)
		}
		s.equal(s.get(s, "n"), adders*times)
	}},
}

var pipelineCases = []conformanceCase{
	{"operations have results of their own", func(s *suite) {
		s.put("a", "1")
		p := s.Pipeline()
		a, x := p.Get(key("a")), p.Get(key("x"))
		put, failed := p.Put(key("b"), key("2")), p.Put(key("a"), nil, kvd.IfAbsent())
		s.equal(p.Len(), 4)
		_, err := a.Result()
		s.is(err, kvd.ErrInvalid)
		err = p.Do(s.ctx())
		s.that(errors.Is(err, kvd.ErrNotFound) && errors.Is(err, kvd.ErrConflict), "both errors are there: %v", err)
		value, err := a.Result()
		s.ok(err)
		s.equal(string(value), "1")
		_, err = x.Result()
		s.is(err, kvd.ErrNotFound)
		w, err := put.Result()
		s.ok(err)
		s.equal(w.Version, s.item(s, "b").Version)
		_, err = failed.Result()
		s.is(err, kvd.ErrConflict)
		s.equal(s.all(s, kvd.All()), "a=1 b=2")
		s.equal(p.Len(), 0)
	}},
	{"operations on one key keep their order", func(s *suite) {
		p := s.Pipeline()
		var reads []*kvd.Pending[[]byte]
		for i := range 20 {
			p.Put(key("k"), key("%d", i))
			reads = append(reads, p.Get(key("k")))
		}
		p.Delete(key("k"))
		s.ok(p.Do(s.ctx()))
		for i, r := range reads {
			value, err := r.Result()
			s.ok(err)
			s.equal(string(value), i)
		}
		s.equal(s.get(s, "k"), absent)
	}},
	{"a write returns what it replaced", func(s *suite) {
		s.put("k", "1")
		p := s.Pipeline()
		put, del := p.Put(key("k"), key("2"), kvd.ReturnPrevious()), p.Delete(key("k"), kvd.ReturnPrevious())
		s.ok(p.Do(s.ctx()))
		w, err := put.Result()
		s.ok(err)
		s.equal(string(w.Previous.Value), "1")
		w, err = del.Result()
		s.ok(err)
		s.equal(string(w.Previous.Value), "2")
	}},
	{"thousands of operations, some of them large", func(s *suite) {
		p := s.Pipeline()
		n := manyOps
		for i := range n {
			p.Put(key("k%04d", i), key("%d", i), kvd.Durable(kvd.Memory))
		}
		p.Put(key("large"), filled(1<<20, 'x'))
		s.ok(p.Do(s.ctx()))
		reads := make([]*kvd.Pending[[]byte], n)
		for i := range n {
			reads[i] = p.Get(key("k%04d", i))
		}
		large := p.Get(key("large"))
		s.ok(p.Do(s.ctx()))
		for i, r := range reads {
			value, err := r.Result()
			s.ok(err)
			s.equal(string(value), i)
		}
		value, err := large.Result()
		s.ok(err)
		s.equal(len(value), 1<<20)
	}},
	{"a key that is too long spoils no other read", func(s *suite) {
		s.put("a", "1", "b", "2")
		p := s.Pipeline()
		first, long, last := p.Get(key("a")), p.Get(filled(keyBytes+1, 'k')), p.Get(key("b"))
		err := p.Do(s.ctx())
		s.that(errors.Is(err, kvd.ErrTooLarge), "the error is there: %v", err)
		_, err = long.Result()
		s.is(err, kvd.ErrTooLarge)
		value, err := first.Result()
		s.ok(err)
		s.equal(string(value), "1")
		value, err = last.Result()
		s.ok(err)
		s.equal(string(value), "2")
	}},
	{"one that makes no sense spoils no other", func(s *suite) {
		p := s.Pipeline()
		empty, long := p.Put(nil, nil), p.Get(filled(5000, 'k'))
		fine := p.Put(key("k"), key("v"))
		s.that(p.Do(s.ctx()) != nil, "there are errors")
		_, err := empty.Result()
		s.is(err, kvd.ErrInvalid)
		_, err = long.Result()
		s.is(err, kvd.ErrTooLarge)
		_, err = fine.Result()
		s.ok(err)
		s.equal(s.get(s, "k"), "v")
	}},
}
