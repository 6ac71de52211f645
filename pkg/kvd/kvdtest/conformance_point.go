package kvdtest

import (
	"bytes"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd"
)

var readCases = []conformanceCase{
	{"an absent key is ErrNotFound", func(s *suite) {
		_, err := s.Get(s.ctx(), []byte("k"))
		e := s.is(err, kvd.ErrNotFound)
		s.equal(e.Op, "get")
		_, err = s.GetItem(s.ctx(), []byte("k"))
		s.is(err, kvd.ErrNotFound)
	}},
	{"an item has its key, value and version", func(s *suite) {
		w, err := s.PutItem(s.ctx(), []byte("k"), []byte("v"))
		s.ok(err)
		item := s.item(s, "k")
		s.equal(string(item.Key)+"="+string(item.Value), "k=v")
		s.equal(item.Version, w.Version)
		s.equal(item.TTL, time.Duration(0))
	}},
	{"an empty value is a value", func(s *suite) {
		s.put("k", "")
		value, err := s.Get(s.ctx(), []byte("k"))
		s.ok(err)
		s.that(value != nil && len(value) == 0, "the value is empty and not nil: %v", value)
	}},
	{"an empty key is ErrInvalid", func(s *suite) {
		_, err := s.Get(s.ctx(), nil)
		s.is(err, kvd.ErrInvalid)
		_, err = s.GetItem(s.ctx(), []byte{})
		s.is(err, kvd.ErrInvalid)
		_, err = s.GetMany(s.ctx(), [][]byte{[]byte("k"), nil})
		s.is(err, kvd.ErrInvalid)
	}},
	{"any bytes are a key and a value", func(s *suite) {
		for _, k := range []string{"\x00", "\x00\x00", "\xff", "\xff\xff\x00", "a\x00b", "ключ", " "} {
			s.put(k, k)
			s.equal(s.get(s, k), k)
		}
	}},
	{"get many answers in order, absent keys and duplicates included", func(s *suite) {
		s.put("a", "1", "b", "2")
		found, err := s.GetMany(s.ctx(), [][]byte{[]byte("b"), []byte("x"), []byte("a"), []byte("b")})
		s.ok(err)
		got := ""
		for _, l := range found {
			got += string(l.Key)
			if l.Found {
				got += "=" + string(l.Value)
			}
			got += " "
		}
		s.equal(got, "b=2 x a=1 b=2 ")
	}},
	{"get many of no keys is nothing", func(s *suite) {
		found, err := s.GetMany(s.ctx(), nil)
		s.ok(err)
		s.equal(len(found), 0)
	}},
	{"results belong to the caller", func(s *suite) {
		s.put("k", "value")
		value, err := s.Get(s.ctx(), []byte("k"))
		s.ok(err)
		copy(value, "xxxxx")
		item := s.item(s, "k")
		copy(item.Value, "yyyyy")
		for item, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			copy(item.Key, "z")
			copy(item.Value, "zzzzz")
		}
		s.equal(s.all(s, kvd.All()), "k=value")
	}},
	{"a version that no snapshot holds is ErrVersionGone", func(s *suite) {
		s.put("k", "1")
		old := s.item(s, "k").Version
		s.put("k", "2")
		_, err := s.Get(s.ctx(), []byte("k"), kvd.AtVersion(old))
		s.is(err, kvd.ErrVersionGone)
		s.is(s.scanError(s, kvd.All(), kvd.AtVersion(old)), kvd.ErrVersionGone)
	}},
	{"timings add up to what a call took", func(s *suite) {
		s.put("k", "v")
		var t kvd.Timings
		for name, call := range map[string]func() error{
			"get":      func() error { _, err := s.Get(s.ctx(), []byte("k"), kvd.Timed(&t)); return err },
			"get many": func() error { _, err := s.GetMany(s.ctx(), [][]byte{[]byte("k")}, kvd.Timed(&t)); return err },
			"put":      func() error { return s.Put(s.ctx(), []byte("k"), nil, kvd.Timed(&t)) },
			"apply": func() error {
				_, err := s.Apply(s.ctx(), new(kvd.Batch).Delete([]byte("k")), kvd.Timed(&t))
				return err
			},
		} {
			t = kvd.Timings{Attempts: 100}
			begun := time.Now()
			s.ok(call())
			took := time.Since(begun)
			s.that(t.Total() > 0 && t.Total() <= took && t.Attempts == 1, "%s took %v in %d attempts: %+v", name, took, 1, t)
			s.put("k", "v")
		}
	}},
}

var writeCases = []conformanceCase{
	{"what was put is read", func(s *suite) {
		s.put("k", "1")
		s.equal(s.get(s, "k"), "1")
		s.put("k", "2")
		s.equal(s.get(s, "k"), "2")
	}},
	{"what was deleted is absent", func(s *suite) {
		s.put("k", "1")
		s.ok(s.Delete(s.ctx(), []byte("k")))
		s.equal(s.get(s, "k"), absent)
		s.ok(s.Delete(s.ctx(), []byte("k")))
	}},
	{"versions grow", func(s *suite) {
		last := uint64(0)
		for i := range 10 {
			w, err := s.PutItem(s.ctx(), []byte{byte(i)}, nil)
			s.ok(err)
			d, err := s.DeleteItem(s.ctx(), []byte{byte(i)})
			s.ok(err)
			s.that(last < w.Version && w.Version < d.Version, "%d < %d < %d", last, w.Version, d.Version)
			last = d.Version
		}
	}},
	{"every durability is visible once it is acknowledged", func(s *suite) {
		for i, d := range []kvd.Durability{kvd.Default, kvd.Memory, kvd.Buffered, kvd.Sync} {
			k := []byte{byte('a' + i)}
			s.ok(s.Put(s.ctx(), k, []byte("v"), kvd.Durable(d)))
			s.equal(s.get(s, string(k)), "v")
			s.ok(s.Delete(s.ctx(), k, kvd.Durable(d)))
			s.equal(s.get(s, string(k)), absent)
		}
	}},
	{"an empty key is ErrInvalid", func(s *suite) {
		s.is(s.Put(s.ctx(), nil, []byte("v")), kvd.ErrInvalid)
		s.is(s.Delete(s.ctx(), []byte{}), kvd.ErrInvalid)
		_, err := s.PutItem(s.ctx(), nil, nil)
		s.is(err, kvd.ErrInvalid)
		_, err = s.DeleteItem(s.ctx(), nil)
		s.is(err, kvd.ErrInvalid)
	}},
	{"arguments may be changed after the call", func(s *suite) {
		k, v := []byte("k"), []byte("v")
		s.ok(s.Put(s.ctx(), k, v, kvd.Durable(kvd.Memory)))
		k[0], v[0] = 'x', 'x'
		s.equal(s.all(s, kvd.All()), "k=v")
	}},
	{"a write returns what it replaced", func(s *suite) {
		k := []byte("k")
		w, err := s.PutItem(s.ctx(), k, []byte("1"), kvd.ReturnPrevious())
		s.ok(err)
		s.that(w.Previous == nil, "nothing was there: %v", w.Previous)
		next, err := s.PutItem(s.ctx(), k, []byte("2"), kvd.ReturnPrevious())
		s.ok(err)
		s.equal(string(next.Previous.Key)+"="+string(next.Previous.Value), "k=1")
		s.equal(next.Previous.Version, w.Version)
		last, err := s.DeleteItem(s.ctx(), k, kvd.ReturnPrevious())
		s.ok(err)
		s.equal(string(last.Previous.Value), "2")
		w, err = s.PutItem(s.ctx(), k, []byte("3"))
		s.ok(err)
		s.that(w.Previous == nil, "it was not asked for: %v", w.Previous)
	}},
	{"options that make no sense are ErrInvalid", func(s *suite) {
		k := []byte("k")
		for _, opts := range [][]kvd.WriteOption{
			{kvd.Durable(9)}, {kvd.TTL(0)}, {kvd.TTL(-time.Second)},
			{kvd.IfAbsent(), kvd.IfPresent()}, {kvd.ReturnPrevious()},
		} {
			s.is(s.Put(s.ctx(), k, nil, opts...), kvd.ErrInvalid)
		}
		s.is(s.Delete(s.ctx(), k, kvd.TTL(time.Second)), kvd.ErrInvalid)
		s.is(s.DeleteRange(s.ctx(), kvd.All(), kvd.IfPresent()), kvd.ErrInvalid)
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"a range is deleted, its end excluded", func(s *suite) {
		s.put("a", "1", "b", "2", "bb", "3", "c", "4")
		s.ok(s.DeleteRange(s.ctx(), kvd.Between([]byte("b"), []byte("c"))))
		s.equal(s.all(s, kvd.All()), "a=1 c=4")
		s.put("b", "5")
		s.equal(s.all(s, kvd.All()), "a=1 b=5 c=4")
	}},
	{"a range without an end, and a prefix, are deleted", func(s *suite) {
		s.put("a", "1", "b/1", "2", "b/2", "3", "c", "4", "\xff\xff", "5")
		s.ok(s.DeleteRange(s.ctx(), kvd.Prefix([]byte("b/"))))
		s.equal(s.all(s, kvd.All()), "a=1 c=4 \xff\xff=5")
		s.ok(s.DeleteRange(s.ctx(), kvd.Between([]byte("c"), nil)))
		s.equal(s.all(s, kvd.All()), "a=1")
		s.ok(s.DeleteRange(s.ctx(), kvd.All()))
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"a range that holds no key deletes nothing", func(s *suite) {
		s.put("a", "1", "b", "2")
		for _, r := range []kvd.Range{
			kvd.Between([]byte("a"), []byte("a")), kvd.Between([]byte("b"), []byte("a")), kvd.Prefix([]byte("x")),
		} {
			s.ok(s.DeleteRange(s.ctx(), r))
		}
		s.equal(s.all(s, kvd.All()), "a=1 b=2")
	}},
}

var conditionCases = []conformanceCase{
	{"if absent", func(s *suite) {
		k := []byte("k")
		w, err := s.PutItem(s.ctx(), k, []byte("1"), kvd.IfAbsent())
		s.ok(err)
		e := s.is(s.Put(s.ctx(), k, []byte("2"), kvd.IfAbsent()), kvd.ErrConflict)
		s.equal(e.Reason, "CONDITION_FAILED")
		s.equal(e.Version, w.Version)
		s.equal(s.get(s, "k"), "1")
		s.ok(s.Delete(s.ctx(), []byte("other"), kvd.IfAbsent()))
		s.is(s.Delete(s.ctx(), k, kvd.IfAbsent()), kvd.ErrConflict)
	}},
	{"if present", func(s *suite) {
		k := []byte("k")
		e := s.is(s.Put(s.ctx(), k, []byte("1"), kvd.IfPresent()), kvd.ErrConflict)
		s.equal(e.Version, 0)
		s.is(s.Delete(s.ctx(), k, kvd.IfPresent()), kvd.ErrConflict)
		s.put("k", "1")
		s.ok(s.Put(s.ctx(), k, []byte("2"), kvd.IfPresent()))
		s.ok(s.Delete(s.ctx(), k, kvd.IfPresent()))
		s.equal(s.get(s, "k"), absent)
	}},
	{"if version", func(s *suite) {
		k := []byte("k")
		w, err := s.PutItem(s.ctx(), k, []byte("1"), kvd.IfVersion(0))
		s.ok(err)
		e := s.is(s.Put(s.ctx(), k, []byte("2"), kvd.IfVersion(w.Version+1)), kvd.ErrConflict)
		s.equal(e.Version, w.Version)
		next, err := s.PutItem(s.ctx(), k, []byte("3"), kvd.IfVersion(w.Version))
		s.ok(err)
		s.is(s.Delete(s.ctx(), k, kvd.IfVersion(w.Version)), kvd.ErrConflict)
		s.ok(s.Delete(s.ctx(), k, kvd.IfVersion(next.Version)))
		s.is(s.Put(s.ctx(), k, nil, kvd.IfVersion(next.Version)), kvd.ErrConflict)
	}},
	{"if value", func(s *suite) {
		k := []byte("k")
		s.is(s.Put(s.ctx(), k, []byte("1"), kvd.IfValue(nil)), kvd.ErrConflict)
		s.put("k", "")
		s.ok(s.Put(s.ctx(), k, []byte("1"), kvd.IfValue(nil)))
		s.is(s.Put(s.ctx(), k, []byte("2"), kvd.IfValue([]byte("0"))), kvd.ErrConflict)
		s.ok(s.Put(s.ctx(), k, []byte("2"), kvd.IfValue([]byte("1"))))
		s.ok(s.Delete(s.ctx(), k, kvd.IfValue([]byte("2"))))
	}},
	{"if value, of large values", func(s *suite) {
		large := filled(300<<10, 'a')
		other := bytes.Clone(large)
		other[len(other)-1] = 'b'
		s.ok(s.Put(s.ctx(), []byte("k"), large))
		s.is(s.Put(s.ctx(), []byte("k"), nil, kvd.IfValue(other)), kvd.ErrConflict)
		s.ok(s.Put(s.ctx(), []byte("k"), other, kvd.IfValue(large)))
		w, err := s.PutItem(s.ctx(), []byte("k"), nil, kvd.IfValue(other), kvd.ReturnPrevious())
		s.ok(err)
		s.that(bytes.Equal(w.Previous.Value, other), "the value before is returned")
	}},
	{"one of many that want the same wins", func(s *suite) {
		const racers = 8
		won := make(chan error, racers)
		for i := range racers {
			go func() { won <- s.Put(s.ctx(), []byte("k"), []byte{byte(i)}, kvd.IfAbsent()) }()
		}
		winners := 0
		for range racers {
			if err := <-won; err == nil {
				winners++
			} else {
				s.is(err, kvd.ErrConflict)
			}
		}
		s.equal(winners, 1)
	}},
}

var expiryCases = []conformanceCase{
	{"a time to live is reported", func(s *suite) {
		s.ok(s.Put(s.ctx(), []byte("k"), []byte("v"), kvd.TTL(time.Hour)))
		ttl := s.item(s, "k").TTL
		s.that(ttl > 0 && ttl <= time.Hour, "it is within an hour: %v", ttl)
		for item, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			s.that(item.TTL > 0 && item.TTL <= time.Hour, "it is within an hour: %v", item.TTL)
		}
		s.put("k", "for ever")
		s.equal(s.item(s, "k").TTL, time.Duration(0))
	}},
	{"a key that has expired is absent", func(s *suite) {
		s.ok(s.Put(s.ctx(), []byte("k"), []byte("v"), kvd.TTL(time.Nanosecond)))
		s.put("kept", "v")
		for s.get(s, "k") != absent {
			time.Sleep(time.Millisecond)
		}
		s.equal(s.all(s, kvd.All()), "kept=v")
		found, err := s.GetMany(s.ctx(), [][]byte{[]byte("k")})
		s.ok(err)
		s.that(!found[0].Found, "get many does not find it")
		s.ok(s.Put(s.ctx(), []byte("k"), []byte("w"), kvd.IfAbsent()))
		s.equal(s.get(s, "k"), "w")
	}},
	{"a batch gives times to live", func(s *suite) {
		_, err := s.Apply(s.ctx(), new(kvd.Batch).Put([]byte("a"), nil, kvd.TTL(time.Hour)).Put([]byte("b"), nil))
		s.ok(err)
		s.that(s.item(s, "a").TTL > 0, "a expires")
		s.equal(s.item(s, "b").TTL, time.Duration(0))
	}},
	{"a transaction gives times to live", func(s *suite) {
		s.ok(s.Update(s.ctx(), func(tx *kvd.Txn) error { return tx.Put(s.ctx(), []byte("a"), nil, kvd.TTL(time.Hour)) }))
		s.that(s.item(s, "a").TTL > 0, "a expires")
	}},
	{"a time to live of centuries is refused", func(s *suite) {
		err := s.Put(s.ctx(), []byte("k"), nil, kvd.TTL(200*365*24*time.Hour))
		s.is(err, kvd.ErrInvalid)
		s.equal(s.get(s, "k"), absent)
	}},
}
