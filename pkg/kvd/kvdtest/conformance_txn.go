package kvdtest

import (
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (s *suite) begin() *kvd.Txn {
	s.Helper()
	tx, err := s.Begin()
	s.ok(err)
	return tx
}

// conflicts runs read in a transaction, then write outside of it, and reports whether the
// transaction, which also writes, conflicts.
func (s *suite) conflicts(read func(tx *kvd.Txn), write func()) bool {
	s.Helper()
	tx := s.begin()
	defer tx.Discard()
	read(tx)
	s.ok(tx.Put(s.ctx(), []byte("result"), nil))
	write()
	_, err := tx.Commit(s.ctx())
	if err == nil {
		return false
	}
	e := s.is(err, kvd.ErrConflict)
	s.equal(e.Reason, "CONFLICT")
	return true
}

var transactionCases = []conformanceCase{
	{"writes appear at one version when it commits", func(s *suite) {
		s.put("a", "1", "b", "2")
		tx := s.begin()
		s.ok(tx.Put(s.ctx(), []byte("a"), []byte("3")))
		s.ok(tx.Delete(s.ctx(), []byte("b")))
		s.ok(tx.Put(s.ctx(), []byte("c"), []byte("4")))
		s.equal(s.all(s, kvd.All()), "a=1 b=2")
		version, err := tx.Commit(s.ctx())
		s.ok(err)
		s.equal(s.all(s, kvd.All()), "a=3 c=4")
		s.equal(s.item(s, "a").Version, version)
		s.equal(s.item(s, "c").Version, version)
		s.equal(tx.CommittedVersion(), version)
	}},
	{"it reads what it wrote", func(s *suite) {
		s.letters()
		tx := s.begin()
		defer tx.Discard()
		s.ok(tx.Put(s.ctx(), []byte("bb"), []byte("mine")))
		s.ok(tx.Delete(s.ctx(), []byte("a")))
		s.ok(tx.DeleteRange(s.ctx(), kvd.Between([]byte("c"), []byte("e"))))
		s.ok(tx.Put(s.ctx(), []byte("d"), []byte("back")))
		s.equal(s.all(tx, kvd.All()), "b=2 bb=mine d=back e=5")
		s.equal(s.all(tx, kvd.All(), kvd.Reverse(), kvd.Limit(3)), "e=5 d=back bb=mine")
		s.equal(s.get(tx, "a"), absent)
		s.equal(s.get(tx, "c"), absent)
		s.equal(s.get(tx, "d"), "back")
		s.equal(s.item(tx, "d").Version, 0)
		found, err := tx.GetMany(s.ctx(), [][]byte{[]byte("bb"), []byte("c"), []byte("e")})
		s.ok(err)
		s.equal(fmt.Sprint(found[0].Found, found[1].Found, found[2].Found), "true false true")
	}},
	{"what was discarded has not happened", func(s *suite) {
		tx := s.begin()
		s.ok(tx.Put(s.ctx(), []byte("a"), nil))
		tx.Discard()
		tx.Discard()
		s.equal(s.all(s, kvd.All()), "")
		_, err := tx.Commit(s.ctx())
		s.is(err, kvd.ErrClosed)
		for _, call := range calls(tx) {
			s.is(call(s.ctx()), kvd.ErrClosed)
		}
	}},
	{"it reads one version", func(s *suite) {
		s.put("a", "1", "b", "1")
		tx := s.begin()
		defer tx.Discard()
		s.equal(s.get(tx, "a"), "1")
		s.put("b", "2")
		s.equal(s.get(tx, "b"), "1")
		_, err := tx.Commit(s.ctx())
		s.ok(err)
	}},
	{"it conflicts with a write of a key that it read", func(s *suite) {
		s.put("a", "1")
		s.that(s.conflicts(func(tx *kvd.Txn) { s.get(tx, "a") }, func() { s.put("a", "2") }), "a put conflicts")
		s.that(s.conflicts(func(tx *kvd.Txn) { s.get(tx, "a") }, func() { s.ok(s.Delete(s.ctx(), []byte("a"))) }), "a delete conflicts")
		s.that(s.conflicts(func(tx *kvd.Txn) { s.get(tx, "a") }, func() { s.put("a", "2") }), "so does a put of what was absent")
		s.that(s.conflicts(func(tx *kvd.Txn) { s.get(tx, "a") }, func() { s.ok(s.DeleteRange(s.ctx(), kvd.All())) }), "and a range delete")
		s.that(s.conflicts(func(tx *kvd.Txn) {
			_, err := tx.GetMany(s.ctx(), [][]byte{[]byte("x"), []byte("y")})
			s.ok(err)
		}, func() { s.put("y", "") }), "and one of many keys")
		s.equal(s.get(s, "result"), absent)
	}},
	{"it does not conflict with what it did not read", func(s *suite) {
		s.put("a", "1", "b", "1")
		s.that(!s.conflicts(func(tx *kvd.Txn) { s.get(tx, "a") }, func() { s.put("b", "2") }), "another key")
		s.that(!s.conflicts(func(tx *kvd.Txn) { s.all(tx, kvd.Prefix([]byte("a"))) }, func() { s.put("b", "3") }), "another range")
		s.that(!s.conflicts(func(*kvd.Txn) {}, func() { s.put("result", "x") }), "a blind write")
	}},
	{"it conflicts with a new key in a range that it scanned", func(s *suite) {
		s.letters()
		between := kvd.Between([]byte("b"), []byte("d"))
		s.that(s.conflicts(func(tx *kvd.Txn) { s.all(tx, between) }, func() { s.put("bb", "") }), "a phantom conflicts")
		s.that(s.conflicts(func(tx *kvd.Txn) { s.all(tx, between, kvd.Reverse()) }, func() { s.ok(s.Delete(s.ctx(), []byte("c"))) }), "so does a delete")
		s.that(!s.conflicts(func(tx *kvd.Txn) { s.all(tx, kvd.All(), kvd.Limit(1)) }, func() { s.put("d", "") }), "but not behind a limit")
	}},
	{"writes with conditions are reads", func(s *suite) {
		s.put("a", "1")
		tx := s.begin()
		s.is(tx.Put(s.ctx(), []byte("a"), nil, kvd.IfAbsent()), kvd.ErrConflict)
		s.ok(tx.Put(s.ctx(), []byte("b"), nil, kvd.IfAbsent()))
		s.ok(tx.Delete(s.ctx(), []byte("a"), kvd.IfValue([]byte("1"))))
		s.put("b", "first")
		_, err := tx.Commit(s.ctx())
		s.is(err, kvd.ErrConflict)
		s.equal(s.all(s, kvd.All()), "a=1 b=first")
	}},
	{"one that only reads never conflicts", func(s *suite) {
		s.put("a", "1")
		tx := s.begin()
		s.equal(s.get(tx, "a"), "1")
		s.put("a", "2")
		version, err := tx.Commit(s.ctx())
		s.ok(err)
		s.equal(version, tx.Version())
	}},
	{"update runs again after a conflict", func(s *suite) {
		s.put("n", "1")
		runs := 0
		s.ok(s.Update(s.ctx(), func(tx *kvd.Txn) error {
			runs++
			value, err := tx.Get(s.ctx(), []byte("n"))
			if err != nil {
				return err
			}
			if runs == 1 {
				s.put("n", "2")
			}
			return tx.Put(s.ctx(), []byte("n"), append(value, '!'))
		}))
		s.equal(runs, 2)
		s.equal(s.get(s, "n"), "2!")
	}},
	{"update gives up after its attempts", func(s *suite) {
		runs := 0
		err := s.Update(s.ctx(), func(tx *kvd.Txn) error {
			runs++
			s.get(tx, "n")
			s.put("n", fmt.Sprint(runs))
			return tx.Put(s.ctx(), []byte("n"), nil)
		}, kvd.MaxAttempts(3))
		e := s.is(err, kvd.ErrConflict)
		s.equal(fmt.Sprint(runs, e.Attempts), "3 3")
	}},
	{"update returns the error of its function", func(s *suite) {
		mine := errors.New("mine")
		err := s.Update(s.ctx(), func(tx *kvd.Txn) error {
			s.ok(tx.Put(s.ctx(), []byte("a"), nil))
			return mine
		})
		s.that(err == mine, "it is the same: %v", err)
		s.equal(s.all(s, kvd.All()), "")
	}},
	{"transact returns what its function did", func(s *suite) {
		s.put("a", "1")
		got, err := kvd.Transact(s.ctx(), s.Store, func(tx *kvd.Txn) (string, error) {
			value, err := tx.Get(s.ctx(), []byte("a"))
			return string(value), err
		})
		s.ok(err)
		s.equal(got, "1")
	}},
	{"transfers keep the sum", func(s *suite) {
		const accounts, movers, moves = 4, 4, 15
		account := func(i int) []byte { return key("account/%d", i%accounts) }
		for i := range accounts {
			s.put(string(account(i)), "100")
		}
		sum := func(r kvd.Reader) (total int, err error) {
			for item, err := range r.Scan(s.ctx(), kvd.Prefix([]byte("account/"))) {
				n := 0
				if err == nil {
					_, err = fmt.Sscan(string(item.Value), &n)
				}
				if err != nil {
					return 0, err
				}
				total += n
			}
			return total, nil
		}
		done := make(chan error, movers)
		for mover := range movers {
			go func() {
				var err error
				for i := 0; i < moves && err == nil; i++ {
					err = s.Update(s.ctx(), func(tx *kvd.Txn) error {
						for n, change := range map[int]int{mover + i: -1, mover + i + 1 + i%(accounts-1): 1} {
							value, err := tx.Get(s.ctx(), account(n))
							if err != nil {
								return err
							}
							old := 0
							if _, err := fmt.Sscan(string(value), &old); err != nil {
								return err
							}
							if err := tx.Put(s.ctx(), account(n), key("%d", old+change)); err != nil {
								return err
							}
						}
						total, err := sum(tx)
						if err == nil && total != 100*accounts {
							err = fmt.Errorf("a transaction saw a sum of %d", total)
						}
						return err
					}, kvd.MaxAttempts(1000), kvd.CommitWith(kvd.Durable(kvd.Memory)))
				}
				done <- err
			}()
		}
		for range movers {
			s.ok(<-done)
		}
		total, err := sum(s)
		s.ok(err)
		s.equal(total, 100*accounts)
	}},
}
