package workload

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// shared is the state that all workers of a run share.
type shared struct {
	loadgen.Clock
	cfg       *Config
	target    Target
	pool      *valuePool
	deletions *deletions
	preloaded uint64 // lower keys are known to have been put; set between phases
	reading   bool   // the mix has reads or deletes, so puts must be remembered
}

func newShared(cfg *Config, target Target, pool *valuePool) *shared {
	deletable := cfg.Keys
	if cfg.Mix.Delete == 0 {
		deletable = 1 // reads check deletions: keep it small
	}
	return &shared{
		Clock:     loadgen.NewClock(),
		cfg:       cfg,
		target:    target,
		pool:      pool,
		deletions: newDeletions(deletable, cfg.Workers),
		preloaded: cfg.Present,
		reading:   cfg.Mix.Get+cfg.Mix.Delete > 0,
	}
}

// worker issues operations, one at a time, and checks the answers. It does not allocate
// while it runs.
//
// For one goroutine only, except for tally.
type worker struct {
	*shared
	index int
	rng   *rand.Rand
	puts  chooser
	reads chooser
	known *knownKeys
	batch *getBatch // set if gets read several keys
	count uint64    // puts so far
	tally *loadgen.Tally

	sizes *ValueSizes
	name  naming // of keys

	key       []byte
	absentKey []byte // a byte longer
	value     []byte // room for the largest
	buf       []byte
}

func newWorker(s *shared, index int) *worker {
	rng := rand.New(rand.NewPCG(s.cfg.Seed, uint64(index)))
	w := &worker{
		shared: s,
		index:  index,
		rng:    rng,
		known:  new(knownKeys),
		tally:  loadgen.NewTally(int(kindCount), extraCount),
		sizes:  s.cfg.sizes(),
		name:   keyNames(s.cfg.keyBytes()),
		value:  make([]byte, s.cfg.ValueBytes),
		buf:    make([]byte, s.cfg.ValueBytes),
	}
	keys := make([]byte, 2*s.cfg.keyBytes()+1)
	w.key, w.absentKey = keys[:s.cfg.keyBytes()], keys[s.cfg.keyBytes():]
	if s.reading {
		w.known = newKnownKeys(s.cfg.Distribution == Latest, s.cfg.Keys, rng)
	}
	w.puts, w.reads = newChoosers(s.cfg.Distribution, s.cfg.Theta, s.cfg.Keys, index, s.cfg.Workers, rng)
	if l, ok := w.reads.(*latest); ok {
		l.written.skip(s.cfg.Preload + s.cfg.Present)
	}
	if s.cfg.GetBatch > 1 {
		w.batch = newGetBatch(w, s.target.(BatchGetter), s.cfg.GetBatch)
	}
	return w
}

// step runs one operation of the mix. intended is when it was due in an open loop, and
// 0 in a closed loop.
func (w *worker) step(ctx context.Context, intended int64) error {
	switch w.cfg.Mix.draw(w.rng) {
	case kindPut:
		return w.put(ctx, w.puts.next(), intended)
	case kindDelete:
		return w.delete(ctx, intended)
	}
	if w.batch != nil {
		return w.batch.get(ctx, intended)
	}
	return w.get(ctx, intended)
}

func (w *worker) put(ctx context.Context, id uint64, intended int64) error {
	w.count++
	v := newVersion(w.index, w.count)
	putKey(w.key, id)
	value := w.value[:w.sizes.draw(w.rng)]
	w.pool.fill(value, id, v, w.rng.Uint64())

	began := w.Now()
	if err := w.target.Put(ctx, w.key, value); err != nil {
		if w.refused(kindPut, err, intended) {
			return nil
		}
		return fmt.Errorf("put key %s: %w", w.key, err)
	}
	w.tally.Record(int(kindPut), began, w.Now(), intended)
	if w.reading {
		w.known.add(knownKey{id: id, version: v, since: began})
	}
	return nil
}

func (w *worker) get(ctx context.Context, intended int64) error {
	key, known := w.readKey()
	began := w.Now()
	found, ended, err := w.read(ctx, key, known)
	if err != nil {
		if w.refused(kindGet, err, intended) {
			return nil
		}
		return err
	}
	w.tally.Record(int(kindGet), began, ended, intended)
	if known && key.since != 0 {
		w.tally.Extra[getKnown].Add(1)
	}
	if found {
		w.tally.Extra[getFound].Add(1)
	}
	return nil
}

func (w *worker) delete(ctx context.Context, intended int64) error {
	key, known := w.readKey()
	var found bool
	if w.cfg.CheckDeletes {
		var err error
		if found, _, err = w.read(ctx, key, known); err != nil {
			if w.refused(kindDelete, err, intended) {
				return nil
			}
			return err
		}
	}
	bytes := w.keyBytes(key.id, known)
	if known {
		w.deletions.begin(w.index, key.id)
	}
	began := w.Now()
	if err := w.target.Delete(ctx, bytes); err != nil {
		if w.refused(kindDelete, err, intended) {
			return nil
		}
		return fmt.Errorf("delete key %s: %w", bytes, err)
	}
	ended := w.Now()
	w.tally.Record(int(kindDelete), began, ended, intended)
	if found {
		w.tally.Extra[deleteFound].Add(1)
	}
	if known {
		w.deletions.end(w.index, key.id, ended)
		w.known.remove(key.id)
	}
	return nil
}

// refused counts an operation of an open loop that the target refused because of overload.
// It returns false for any other error.
func (w *worker) refused(k kind, err error, intended int64) bool {
	r, ok := w.target.(Refuser)
	if intended == 0 || !ok || !r.Refused(err) {
		return false
	}
	w.tally.Refuse(int(k), w.Now())
	return true
}

// readKey chooses the key of a get or delete: at the find rate a key that is known to
// have been put, otherwise a key that never is.
//
// It draws from the distribution, and uses that key if it is known; otherwise it picks
// any key that the worker remembers. So reads keep the skew of the distribution, and in
// a preloaded store they reach all keys, not only those that the workers remember. In a
// store of earlier runs they reach all keys, too, though some may be absent.
func (w *worker) readKey() (key knownKey, known bool) {
	if w.cfg.FindRate > 0 && w.rng.Float64() < w.cfg.FindRate {
		id := w.reads.next()
		if key, ok := w.known.lookup(id); ok {
			return key, true
		}
		if id < w.preloaded && !w.deletions.possible(id, 1) {
			return knownKey{id: id, since: 1}, true
		}
		if w.cfg.Reused {
			return knownKey{id: id}, true
		}
		if key, ok := w.known.pick(); ok {
			return key, true
		}
	}
	return knownKey{id: w.rng.Uint64N(w.cfg.Keys)}, false
}

// keyBytes writes a key, known or absent, to the worker's memory.
func (w *worker) keyBytes(id uint64, known bool) []byte {
	if known {
		putKey(w.key, id)
		return w.key
	}
	putAbsentKey(w.absentKey, id)
	return w.absentKey
}

// read gets a key and checks the answer. ended is when the answer arrived: the latency
// does not include the check.
func (w *worker) read(ctx context.Context, key knownKey, known bool) (found bool, ended int64, err error) {
	bytes := w.keyBytes(key.id, known)
	value, found, err := w.target.Get(ctx, bytes, w.buf)
	ended = w.Now()
	if err != nil {
		return found, ended, fmt.Errorf("get key %s: %w", bytes, err)
	}
	return found, ended, w.judge(ctx, key, known, bytes, value, found)
}

// judge returns an error for a wrong answer.
func (w *worker) judge(ctx context.Context, key knownKey, known bool, bytes, value []byte, found bool) (err error) {
	switch {
	case w.cfg.Unverified:
	case !known && found:
		err = fmt.Errorf("%w: key %s was never put, yet has a value of %d bytes", ErrWrongAnswer, bytes, len(value))
	case found:
		err = w.checkFound(key, value)
	case known && key.since == 0: // an earlier run may have put it, or not
	case known && w.deletions.possible(key.id, key.since):
		w.known.remove(key.id)
	case known:
		err = w.lost(ctx, key, bytes)
	}
	return err
}

// lost returns the error for a key that should have been found. A second read tells
// whether the key is gone or was only missed once.
func (w *worker) lost(ctx context.Context, key knownKey, bytes []byte) error {
	again := "a second read does not find it either"
	if value, found, err := w.target.Get(ctx, bytes, w.buf); err != nil {
		again = fmt.Sprintf("a second read fails: %v", err)
	} else if found {
		v, err := checkValue(value, key.id, w.name)
		if err != nil {
			return err
		}
		again = fmt.Sprintf("a second read finds %v", v)
	}
	return fmt.Errorf("%w: key %s is lost: %v was acknowledged, no delete came after; %s",
		ErrWrongAnswer, bytes, key.version, again)
}

// checkFound accepts a value of the key. A value of this worker must be its last one:
// only this worker writes those, one after the other.
func (w *worker) checkFound(key knownKey, value []byte) error {
	v, err := checkValue(value, key.id, w.name)
	if err != nil {
		return err
	}
	if key.version != 0 && v.worker() == w.index && v != key.version {
		return fmt.Errorf("%w: %s has the value of %v, but %v came after and was acknowledged",
			ErrWrongAnswer, w.name(key.id), v, key.version)
	}
	return nil
}
