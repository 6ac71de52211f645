package kvdtest

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// letters puts the keys a to e.
func (s *suite) letters() { s.put("a", "1", "b", "2", "c", "3", "d", "4", "e", "5") }

var scanCases = []conformanceCase{
	{"a store is empty at first", func(s *suite) { s.equal(s.all(s, kvd.All()), "") }},
	{"items come in the order of bytes", func(s *suite) {
		s.put("b", "1", "\xff", "2", "a", "3", "aa", "4", "\x00", "5", "B", "6")
		s.equal(s.all(s, kvd.All()), "\x00=5 B=6 a=3 aa=4 b=1 \xff=2")
		s.equal(s.all(s, kvd.All(), kvd.Reverse()), "\xff=2 b=1 aa=4 a=3 B=6 \x00=5")
	}},
	{"a range includes its start and excludes its end", func(s *suite) {
		s.letters()
		s.equal(s.all(s, kvd.Between([]byte("b"), []byte("d"))), "b=2 c=3")
		s.equal(s.all(s, kvd.Between([]byte("b"), []byte("d")), kvd.Reverse()), "c=3 b=2")
		s.equal(s.all(s, kvd.Between(nil, []byte("b"))), "a=1")
		s.equal(s.all(s, kvd.Between([]byte("d"), nil)), "d=4 e=5")
		s.equal(s.all(s, kvd.Between([]byte("bb"), []byte("bc"))), "")
		s.equal(s.all(s, kvd.Between([]byte("b"), []byte("b"))), "")
	}},
	{"a range that ends before it starts is ErrInvalid", func(s *suite) {
		s.is(s.scanError(s, kvd.Between([]byte("b"), []byte("a"))), kvd.ErrInvalid)
	}},
	{"a prefix", func(s *suite) {
		s.put("a", "1", "a/", "2", "a/x", "3", "a0", "4", "\xff\xff", "5", "\xff\xffx", "6")
		s.equal(s.all(s, kvd.Prefix([]byte("a/"))), "a/=2 a/x=3")
		s.equal(s.all(s, kvd.Prefix([]byte("\xff\xff"))), "\xff\xff=5 \xff\xffx=6")
	}},
	{"a limit", func(s *suite) {
		s.letters()
		s.equal(s.all(s, kvd.All(), kvd.Limit(2)), "a=1 b=2")
		s.equal(s.all(s, kvd.All(), kvd.Limit(2), kvd.Reverse()), "e=5 d=4")
		s.equal(s.all(s, kvd.All(), kvd.Limit(0), kvd.KeysOnly()), "a= b= c= d= e=")
		s.equal(s.all(s, kvd.All(), kvd.Limit(100)), "a=1 b=2 c=3 d=4 e=5")
	}},
	{"a loop may be left", func(s *suite) {
		s.letters()
		got := ""
		for item, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			if got += string(item.Key); len(got) == 2 {
				break
			}
		}
		s.equal(got, "ab")
	}},
	{"items may be kept", func(s *suite) {
		s.letters()
		var items []kvd.Item
		for item, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			items = append(items, item)
		}
		got := ""
		for _, item := range items {
			got += string(item.Key) + string(item.Value)
		}
		s.equal(got, "a1b2c3d4e5")
	}},
	{"borrowed items are those of any scan", func(s *suite) {
		s.letters()
		s.put("empty", "")
		all := "a=1 b=2 c=3 d=4 e=5 empty="
		s.equal(s.all(s, kvd.All(), kvd.Borrow()), all)
		s.equal(s.all(s, kvd.All(), kvd.Borrow(), kvd.KeysOnly(), kvd.Limit(2), kvd.Reverse()), "empty= e=")
		for item, err := range s.Scan(s.ctx(), kvd.All(), kvd.Borrow()) {
			s.ok(err)
			s.equal(item.Value != nil, true)
		}
		s.ok(s.Update(s.ctx(), func(tx *kvd.Txn) error {
			s.ok(tx.Put(s.ctx(), []byte("f"), []byte("6")))
			s.equal(s.all(tx, kvd.All(), kvd.Borrow()), all+" f=6")
			return nil
		}))
	}},
	{"a scan is of one version", func(s *suite) {
		s.letters()
		got := ""
		for item, err := range s.Scan(s.ctx(), kvd.All()) {
			s.ok(err)
			got += string(item.Key) + string(item.Value)
			s.ok(s.Put(s.ctx(), []byte("e"), []byte("new")))
			s.ok(s.Delete(s.ctx(), []byte("d")))
			s.ok(s.Put(s.ctx(), []byte("ee"), nil))
		}
		s.equal(got, "a1b2c3d4e5")
	}},
	{"a scan may be run twice", func(s *suite) {
		s.letters()
		scan := s.Scan(s.ctx(), kvd.All(), kvd.Limit(3))
		for range 2 {
			got := ""
			for item, err := range scan {
				s.ok(err)
				got += string(item.Key)
			}
			s.equal(got, "abc")
			s.put("aa", "6")
			s.ok(s.Delete(s.ctx(), []byte("aa")))
		}
	}},
	{"thousands of items, some of them large", func(s *suite) {
		for i := range 30 {
			b := new(kvd.Batch)
			for j := range 100 {
				b.Put(key("k%02d%02d", i, j), filled(j, 'v'))
			}
			b.Put(key("k%02dlarge", i), filled(50<<10, 'l'))
			_, err := s.Apply(s.ctx(), b, kvd.Durable(kvd.Memory))
			s.ok(err)
		}
		for _, opts := range [][]kvd.ScanOption{nil, {kvd.Reverse()}} {
			count, bytes, last := 0, 0, ""
			for item, err := range s.Scan(s.ctx(), kvd.All(), opts...) {
				s.ok(err)
				s.that(last == "" || (last < string(item.Key)) == (opts == nil), "%s and %s are in order", last, item.Key)
				count, bytes, last = count+1, bytes+len(item.Value), string(item.Key)
			}
			s.equal(count, 30*101)
			s.equal(bytes, 30*(99*50+50<<10))
		}
	}},
	{"a context that ends ends the loop", func(s *suite) {
		b := new(kvd.Batch)
		for i := range 2000 {
			b.Put(key("k%04d", i), filled(1000, 'v'))
		}
		_, err := s.Apply(s.ctx(), b)
		s.ok(err)
		ctx, cancel := context.WithCancel(s.ctx())
		defer cancel()
		items := 0
		var last error
		for _, err := range s.Scan(ctx, kvd.All()) {
			if last = err; err != nil {
				break
			}
			if items++; items == 1 {
				cancel()
			}
		}
		// What was read ahead may still be yielded.
		s.that(items == 2000 || errors.Is(last, context.Canceled), "%d items, then %v", items, last)
	}},
}

var snapshotCases = []conformanceCase{
	{"a snapshot stays as it is", func(s *suite) {
		s.letters()
		snapshot, err := s.Snapshot(s.ctx())
		s.ok(err)
		defer snapshot.Close()
		s.that(snapshot.Version() >= s.item(s, "e").Version, "it has all that was acknowledged")
		s.put("a", "new", "f", "6")
		s.ok(s.DeleteRange(s.ctx(), kvd.Between([]byte("b"), []byte("d"))))
		s.equal(s.all(snapshot, kvd.All()), "a=1 b=2 c=3 d=4 e=5")
		s.equal(s.all(snapshot, kvd.All(), kvd.Reverse(), kvd.Limit(2)), "e=5 d=4")
		s.equal(s.get(snapshot, "a"), "1")
		s.equal(s.get(snapshot, "f"), absent)
		s.equal(string(s.item(snapshot, "b").Value), "2")
		found, err := snapshot.GetMany(s.ctx(), [][]byte{[]byte("c"), []byte("f")})
		s.ok(err)
		s.that(found[0].Found && !found[1].Found, "get many reads it too")
		s.equal(s.all(s, kvd.All()), "a=new d=4 e=5 f=6")
	}},
	{"others read at its version while it is open", func(s *suite) {
		s.put("k", "1")
		snapshot, err := s.Snapshot(s.ctx())
		s.ok(err)
		s.put("k", "2")
		value, err := s.Get(s.ctx(), []byte("k"), kvd.AtVersion(snapshot.Version()))
		s.ok(err)
		s.equal(string(value), "1")
		s.equal(s.all(s, kvd.All(), kvd.AtVersion(snapshot.Version())), "k=1")
		s.ok(snapshot.Close())
	}},
	{"a closed snapshot is ErrClosed", func(s *suite) {
		snapshot, err := s.Snapshot(s.ctx())
		s.ok(err)
		s.ok(snapshot.Close())
		s.ok(snapshot.Close())
		for _, call := range calls(snapshot) {
			s.is(call(s.ctx()), kvd.ErrClosed)
		}
	}},
	{"it reads at its own version alone", func(s *suite) {
		s.ok(s.View(s.ctx(), func(snapshot *kvd.Snapshot) error {
			_, err := snapshot.Get(s.ctx(), []byte("k"), kvd.AtVersion(1))
			s.is(err, kvd.ErrInvalid)
			s.is(s.scanError(snapshot, kvd.All(), kvd.AtVersion(1)), kvd.ErrInvalid)
			return nil
		}))
	}},
	{"a view returns the error of its function", func(s *suite) {
		mine := errors.New("mine")
		err := s.View(s.ctx(), func(*kvd.Snapshot) error { return mine })
		s.that(err == mine, "it is the same: %v", err)
	}},
	{"options that make no sense are ErrInvalid", func(s *suite) {
		for _, o := range []kvd.TxnOption{kvd.Lease(-1), kvd.MaxAge(0), kvd.MaxAttempts(0)} {
			_, err := s.Snapshot(s.ctx(), o)
			s.is(err, kvd.ErrInvalid)
			s.is(s.View(s.ctx(), func(*kvd.Snapshot) error { return nil }, o), kvd.ErrInvalid)
			_, err = s.Begin(o)
			s.is(err, kvd.ErrInvalid)
			s.is(s.Update(s.ctx(), func(*kvd.Txn) error { return nil }, o), kvd.ErrInvalid)
		}
	}},
}
