package kvdtest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// Random calls of one caller against a map. A seed is a subtest, so that one that fails can
// be run again.
var historyCases = func() (cases []conformanceCase) {
	for seed := range uint64(8) {
		cases = append(cases, conformanceCase{fmt.Sprintf("seed %d", seed), func(s *suite) {
			h := &history{suite: s, random: rand.New(rand.NewPCG(seed, 0)), model: map[string]entry{}}
			defer h.closeSnapshots()
			for i := range 400 {
				h.step = i
				h.next()
			}
			h.check(s, h.model)
		}})
	}
	return cases
}()

// entry is what a key holds.
type entry struct {
	value   string
	version uint64
}

type history struct {
	*suite
	random    *rand.Rand
	step      int
	model     map[string]entry
	snapshots []oldState
}

// oldState is a snapshot and what it holds.
type oldState struct {
	snapshot *kvd.Snapshot
	model    map[string]entry
}

func (h *history) closeSnapshots() {
	for _, o := range h.snapshots {
		h.ok(o.snapshot.Close())
	}
}

// key is one of few, so that calls meet. Some begin with others.
func (h *history) key() string {
	return strings.Repeat(string(rune('a'+h.random.IntN(5))), 1+h.random.IntN(3))
}

// value is small, or large enough to be stored and sent another way.
func (h *history) value() string {
	size := []int{0, 1, 10, 300, 5000, 100_000}[h.random.IntN(6)]
	if size == 100_000 && h.random.IntN(4) > 0 {
		size = 20
	}
	return strings.Repeat(string(rune('A'+h.random.IntN(26))), size)
}

func (h *history) span() kvd.Range {
	a, b := h.key(), h.key()
	if a > b {
		a, b = b, a
	}
	switch h.random.IntN(6) {
	case 0:
		a = ""
	case 1:
		b = ""
	}
	return kvd.Between([]byte(a), []byte(b))
}

func (h *history) durable() kvd.WriteOption {
	return kvd.Durable(kvd.Durability(h.random.IntN(int(kvd.Sync) + 1)))
}

// condition returns one, and whether it holds of what a key has.
func (h *history) condition(key string, model map[string]entry) (kvd.Condition, bool) {
	e, found := model[key]
	switch h.random.IntN(5) {
	case 0:
		return kvd.IfAbsent(), !found
	case 1:
		return kvd.IfPresent(), found
	case 2:
		return kvd.IfVersion(e.version), true // 0 is that of an absent key
	case 3:
		return kvd.IfVersion(e.version + 1), false
	}
	return kvd.IfValue([]byte(e.value)), found
}

func (h *history) next() {
	switch h.random.IntN(12) {
	case 0, 1, 2:
		h.write()
	case 3:
		r := h.span()
		h.ok(h.DeleteRange(h.ctx(), r, h.durable()))
		deleteRange(h.model, r)
	case 4, 5:
		h.apply()
	case 6:
		h.update()
	case 7:
		h.execute()
	case 8:
		h.pipeline()
	case 9:
		h.snapshot()
	default:
		h.check(h, h.model)
	}
}

func inRange(key string, r kvd.Range) bool {
	return key >= string(r.Start) && (len(r.End) == 0 || key < string(r.End))
}

func deleteRange(model map[string]entry, r kvd.Range) {
	maps.DeleteFunc(model, func(key string, _ entry) bool { return inRange(key, r) })
}

// write puts or deletes one key, perhaps under a condition.
func (h *history) write() {
	k, v := h.key(), h.value()
	opts := []kvd.WriteOption{h.durable()}
	holds := true
	if h.random.IntN(3) == 0 {
		var c kvd.Condition
		c, holds = h.condition(k, h.model)
		opts = append(opts, c)
	}
	before, found := h.model[k]
	returns := h.random.IntN(2) == 0
	if returns {
		opts = append(opts, kvd.ReturnPrevious())
	}
	put := h.random.IntN(3) > 0
	var w kvd.Written
	var err error
	if put {
		w, err = h.PutItem(h.ctx(), []byte(k), []byte(v), opts...)
	} else {
		w, err = h.DeleteItem(h.ctx(), []byte(k), opts...)
	}
	if !holds {
		e := h.is(err, kvd.ErrConflict)
		h.that(e.Version == before.version, "step %d: the error tells version %d: %d", h.step, before.version, e.Version)
		return
	}
	h.ok(err)
	h.that((w.Previous != nil) == (returns && found), "step %d: %s had a previous item: %v", h.step, k, found)
	if w.Previous != nil {
		h.that(string(w.Previous.Value) == before.value && w.Previous.Version == before.version, "step %d: previous of %s", h.step, k)
	}
	if put {
		h.model[k] = entry{v, w.Version}
	} else {
		delete(h.model, k)
	}
}

// batch returns some writes and what they make of a model. With conditions it may have
// some, and reports whether they hold.
func (h *history) batch(model map[string]entry, conditions bool) (b *kvd.Batch, after func(version uint64) map[string]entry, holds bool) {
	b, holds = new(kvd.Batch), true
	before, next := model, maps.Clone(model)
	for range 1 + h.random.IntN(6) {
		k, v := h.key(), h.value()
		if h.random.IntN(4) == 0 {
			r := h.span()
			b.DeleteRange(r)
			deleteRange(next, r)
			continue
		}
		var opts []kvd.WriteOption
		if conditions && h.random.IntN(5) == 0 {
			c, ok := h.condition(k, before)
			opts, holds = append(opts, c), holds && ok
		}
		if h.random.IntN(3) == 0 {
			b.Delete([]byte(k), opts...)
			delete(next, k)
		} else {
			b.Put([]byte(k), []byte(v), opts...)
			next[k] = entry{v, 0}
		}
	}
	return b, func(version uint64) map[string]entry {
		for k, e := range next {
			if e.version == 0 {
				next[k] = entry{e.value, version}
			}
		}
		return next
	}, holds
}

func (h *history) apply() {
	b, after, holds := h.batch(h.model, true)
	version, err := h.Apply(h.ctx(), b, h.durable())
	if !holds {
		h.is(err, kvd.ErrConflict)
		return
	}
	h.ok(err)
	h.model = after(version)
}

func (h *history) execute() {
	var e kvd.Execution
	holds := true
	for range h.random.IntN(3) {
		k := h.key()
		c, ok := h.condition(k, h.model)
		e.If, holds = append(e.If, kvd.Guard{Key: []byte(k), Condition: c}), holds && ok
	}
	var then, otherwise func(uint64) map[string]entry
	e.Then, then, _ = h.batch(h.model, false)
	e.Else, otherwise, _ = h.batch(h.model, false)
	r, err := h.Execute(h.ctx(), e, h.durable())
	h.ok(err)
	h.that(r.Succeeded == holds, "step %d: the guards hold: %v", h.step, holds)
	if holds {
		h.model = then(r.Version)
	} else {
		h.model = otherwise(r.Version)
	}
}

// update runs a transaction, which may be discarded.
func (h *history) update() {
	mine := errors.New("discarded")
	next := maps.Clone(h.model)
	var last *kvd.Txn
	err := h.Update(h.ctx(), func(tx *kvd.Txn) error {
		last = tx
		next = maps.Clone(h.model)
		for range 1 + h.random.IntN(6) {
			k, v := h.key(), h.value()
			switch h.random.IntN(6) {
			case 0:
				h.ok(tx.Delete(h.ctx(), []byte(k)))
				delete(next, k)
			case 1:
				r := h.span()
				h.ok(tx.DeleteRange(h.ctx(), r))
				deleteRange(next, r)
			case 2:
				h.check(tx, next)
			case 3:
				want := absent
				if e, found := next[k]; found {
					want = e.value
				}
				h.that(h.get(tx, k) == want, "step %d: a transaction reads %s", h.step, k)
			default:
				h.ok(tx.Put(h.ctx(), []byte(k), []byte(v)))
				next[k] = entry{v, 0}
			}
		}
		if h.random.IntN(4) == 0 {
			return mine
		}
		return nil
	}, kvd.CommitWith(h.durable()))
	if err == mine {
		return
	}
	h.ok(err)
	for k, e := range next {
		if e.version == 0 {
			next[k] = entry{e.value, last.CommittedVersion()}
		}
	}
	h.model = next
}

func (h *history) pipeline() {
	p := h.Pipeline()
	var then []func()
	for range 1 + h.random.IntN(10) {
		k, v := h.key(), h.value()
		switch h.random.IntN(3) {
		case 0:
			pending := p.Get([]byte(k))
			then = append(then, func() {
				value, err := pending.Result()
				e, found := h.model[k]
				if !found {
					h.is(err, kvd.ErrNotFound)
					return
				}
				h.ok(err)
				h.that(string(value) == e.value, "step %d: a pipeline reads %s", h.step, k)
			})
		case 1:
			pending := p.Delete([]byte(k), h.durable())
			then = append(then, func() {
				_, err := pending.Result()
				h.ok(err)
				delete(h.model, k)
			})
		default:
			pending := p.Put([]byte(k), []byte(v), h.durable())
			then = append(then, func() {
				w, err := pending.Result()
				h.ok(err)
				h.model[k] = entry{v, w.Version}
			})
		}
	}
	if err := p.Do(h.ctx()); err != nil && !errors.Is(err, kvd.ErrNotFound) {
		h.ok(err)
	}
	for _, f := range then {
		f()
	}
}

// snapshot begins one, or reads an old one and perhaps closes it.
func (h *history) snapshot() {
	if len(h.snapshots) < 3 && h.random.IntN(2) == 0 {
		snapshot, err := h.Snapshot(h.ctx())
		h.ok(err)
		h.snapshots = append(h.snapshots, oldState{snapshot, maps.Clone(h.model)})
		return
	}
	if len(h.snapshots) == 0 {
		return
	}
	i := h.random.IntN(len(h.snapshots))
	o := h.snapshots[i]
	h.check(o.snapshot, o.model)
	if h.random.IntN(2) == 0 {
		h.ok(o.snapshot.Close())
		h.snapshots = slices.Delete(h.snapshots, i, i+1)
	}
}

// check compares a scan and some reads with a model.
func (h *history) check(r kvd.Reader, model map[string]entry) {
	over, reverse, limit := h.span(), h.random.IntN(2) == 0, h.random.IntN(4)
	var want []string
	for k := range model {
		if inRange(k, over) {
			want = append(want, k)
		}
	}
	slices.Sort(want)
	opts := []kvd.ScanOption{kvd.Limit(limit)}
	if reverse {
		slices.Reverse(want)
		opts = append(opts, kvd.Reverse())
	}
	if limit > 0 && len(want) > limit {
		want = want[:limit]
	}
	i := 0
	for item, err := range r.Scan(h.ctx(), over, opts...) {
		h.ok(err)
		h.that(i < len(want) && string(item.Key) == want[i], "step %d: item %d of %q is %.200q, of %q", h.step, i, over, item.Key, want)
		h.checkItem(item, model[want[i]])
		i++
	}
	h.that(i == len(want), "step %d: a scan of %q has %d items: %q", h.step, over, i, want)
	keys := [][]byte{[]byte(h.key()), []byte(h.key()), []byte(h.key())}
	found, err := r.GetMany(h.ctx(), keys)
	h.ok(err)
	for i, l := range found {
		e, has := model[string(keys[i])]
		h.that(l.Found == has && bytes.Equal(l.Key, keys[i]), "step %d: %s is there: %v", h.step, keys[i], has)
		if has {
			h.checkItem(l.Item, e)
		}
	}
}

func (h *history) checkItem(item kvd.Item, e entry) {
	h.that(string(item.Value) == e.value && item.Version == e.version, "step %d: %s has version %d and %d bytes: %d and %d",
		h.step, item.Key, e.version, len(e.value), item.Version, len(item.Value))
}
