package kvdtest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/pkg/kvd"
)

var argumentCases = []conformanceCase{
	{"a nil argument is ErrInvalid, and the error says what is nil", func(s *suite) {
		s.put("k", "v")
		refused := s.nilArguments()
		for _, c := range slices.Sorted(maps.Keys(refused)) {
			func() {
				defer func() {
					if p := recover(); p != nil {
						s.Errorf("%s: it panics: %v", c, p)
					}
				}()
				err := refused[c]()
				s.is(err, kvd.ErrInvalid)
				s.that(strings.Contains(err.Error(), "nil"), "%s: the error says what is nil: %v", c, err)
			}()
		}
		s.equal(s.all(s, kvd.All()), "k=v")
	}},
}

// nilArguments are calls with an argument that is nil and must not be.
func (s *suite) nilArguments() map[string]func() error {
	k := key("k")
	read := func(_ any, err error) error { return err }
	queued := func(queue func(p *kvd.Pipeline)) func() error {
		return func() error {
			p := s.Pipeline()
			queue(p)
			return p.Do(s.ctx())
		}
	}
	inTxn := func(call func(tx *kvd.Txn) error) func() error {
		return func() error { return s.Update(s.ctx(), call) }
	}
	all := map[string]func() error{
		"apply without a batch":       func() error { return read(s.Apply(s.ctx(), nil)) },
		"update without a function":   func() error { return s.Update(s.ctx(), nil) },
		"view without a function":     func() error { return s.View(s.ctx(), nil) },
		"transact without a function": func() error { return read(kvd.Transact[int](s.ctx(), s.Store, nil)) },
		"transact without a store": func() error {
			return read(kvd.Transact(s.ctx(), nil, func(*kvd.Txn) (int, error) { return 0, nil }))
		},
		"put, nil option":           func() error { return s.Put(s.ctx(), k, nil, nil) },
		"put item, nil option":      func() error { return read(s.PutItem(s.ctx(), k, nil, kvd.IfPresent(), nil)) },
		"delete, nil option":        func() error { return s.Delete(s.ctx(), k, nil) },
		"delete item, nil option":   func() error { return read(s.DeleteItem(s.ctx(), k, nil)) },
		"delete range, nil option":  func() error { return s.DeleteRange(s.ctx(), kvd.All(), nil) },
		"apply, nil option":         func() error { return read(s.Apply(s.ctx(), new(kvd.Batch).Delete(k), nil)) },
		"batch put, nil option":     func() error { return read(s.Apply(s.ctx(), new(kvd.Batch).Put(k, nil, nil))) },
		"batch delete, nil option":  func() error { return read(s.Apply(s.ctx(), new(kvd.Batch).Delete(k, nil))) },
		"execute, nil option":       func() error { return read(s.Execute(s.ctx(), kvd.Execution{Then: new(kvd.Batch).Delete(k)}, nil)) },
		"execute, batch nil option": func() error { return read(s.Execute(s.ctx(), kvd.Execution{Then: new(kvd.Batch).Delete(k, nil)})) },
		"begin, nil option":         func() error { return read(s.Begin(nil)) },
		"snapshot, nil option":      func() error { return read(s.Snapshot(s.ctx(), nil)) },
		"view, nil option":          func() error { return s.View(s.ctx(), func(*kvd.Snapshot) error { return nil }, nil) },
		"update, nil option":        func() error { return s.Update(s.ctx(), func(*kvd.Txn) error { return nil }, nil) },
		"commit with, nil option": func() error {
			return s.Update(s.ctx(), func(*kvd.Txn) error { return nil }, kvd.CommitWith(nil))
		},
		"pipeline get, nil option":       queued(func(p *kvd.Pipeline) { p.Get(k, nil) }),
		"pipeline put, nil option":       queued(func(p *kvd.Pipeline) { p.Put(k, nil, nil) }),
		"pipeline delete, nil option":    queued(func(p *kvd.Pipeline) { p.Delete(k, nil) }),
		"transaction put, nil option":    inTxn(func(tx *kvd.Txn) error { return tx.Put(s.ctx(), k, nil, nil) }),
		"transaction delete, nil option": inTxn(func(tx *kvd.Txn) error { return tx.Delete(s.ctx(), k, nil) }),
		"transaction delete range, nil option": inTxn(func(tx *kvd.Txn) error {
			return tx.DeleteRange(s.ctx(), kvd.All(), nil)
		}),
		"transaction commit, nil option": func() error {
			tx, err := s.Begin()
			s.ok(err)
			s.ok(tx.Delete(s.ctx(), k))
			return read(tx.Commit(s.ctx(), nil))
		},
	}
	if c, ok := s.Store.(interface {
		Scrub(context.Context, int64, func(kvd.ScrubStep)) error
	}); ok {
		all["scrub without a function"] = func() error { return c.Scrub(s.ctx(), 0, nil) }
	}
	onReader := func(name string, with func(func(kvd.Reader) error) error) {
		for read, call := range nilReads(s) {
			all[name+read] = func() error { return with(call) }
		}
	}
	onReader("", func(call func(kvd.Reader) error) error { return call(s.Store) })
	onReader("snapshot ", func(call func(kvd.Reader) error) error {
		return s.View(s.ctx(), func(r *kvd.Snapshot) error { return call(r) })
	})
	onReader("transaction ", func(call func(kvd.Reader) error) error {
		return s.Update(s.ctx(), func(tx *kvd.Txn) error { return call(tx) })
	})
	return all
}

// nilReads are reads with a nil option.
func nilReads(s *suite) map[string]func(r kvd.Reader) error {
	k := key("k")
	return map[string]func(r kvd.Reader) error{
		"get, nil option":      func(r kvd.Reader) error { _, err := r.Get(s.ctx(), k, nil); return err },
		"get item, nil option": func(r kvd.Reader) error { _, err := r.GetItem(s.ctx(), k, nil); return err },
		"get many, nil option": func(r kvd.Reader) error { _, err := r.GetMany(s.ctx(), [][]byte{k}, nil); return err },
		"scan, nil option":     func(r kvd.Reader) error { return s.scanError(r, kvd.All(), kvd.Reverse(), nil) },
	}
}
