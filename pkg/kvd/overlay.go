package kvd

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// overlay has the uncommitted writes of a transaction. The zero value is empty.
//
// Invariant: a write of a key is later than every range delete that covers the key, because a
// range delete removes the writes that it covers.
type overlay struct {
	keys   map[string]*overlayWrite
	ranges ranges // deleted
}

type ranges []Range

func (r ranges) contain(key []byte) bool {
	return slices.ContainsFunc(r, func(r Range) bool { return r.contains(key) })
}

// overlayWrite is the last write of one key.
type overlayWrite struct {
	key     string
	deleted bool
	value   []byte
	ttl     time.Duration
}

// lookup returns what a read of the key finds, as a copy without the key.
func (w *overlayWrite) lookup() Lookup {
	if w.deleted {
		return Lookup{}
	}
	return Lookup{Item: Item{Value: append([]byte{}, w.value...), TTL: w.ttl}, Found: true}
}

func (o *overlay) empty() bool { return len(o.keys)+len(o.ranges) == 0 }

// put copies key and value.
func (o *overlay) put(key, value []byte, ttl time.Duration) {
	o.set(&overlayWrite{key: string(key), value: bytes.Clone(value), ttl: ttl})
}

func (o *overlay) delete(key []byte) { o.set(&overlayWrite{key: string(key), deleted: true}) }

func (o *overlay) set(w *overlayWrite) {
	if o.keys == nil {
		o.keys = make(map[string]*overlayWrite)
	}
	o.keys[w.key] = w
}

// deleteRange copies r.
func (o *overlay) deleteRange(r Range) {
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) >= 0 {
		return // the range is empty
	}
	for key := range o.keys {
		if r.contains([]byte(key)) {
			delete(o.keys, key)
		}
	}
	o.ranges = append(o.ranges, r.clone())
}

// get returns what a read of key finds if the transaction wrote or deleted it.
func (o *overlay) get(key []byte) (found Lookup, written bool) {
	if w := o.keys[string(key)]; w != nil {
		return w.lookup(), true
	}
	return Lookup{}, o.ranges.contain(key)
}

// within returns the writes of keys in r in the order of a scan.
func (o *overlay) within(r Range, reverse bool) []*overlayWrite {
	var writes []*overlayWrite
	for key, w := range o.keys {
		if r.contains([]byte(key)) {
			writes = append(writes, w)
		}
	}
	slices.SortFunc(writes, func(a, b *overlayWrite) int { return strings.Compare(a.key, b.key) })
	if reverse {
		slices.Reverse(writes)
	}
	return writes
}

// mutations returns the writes, each range delete before the later writes in its range. They
// share memory with the overlay.
func (o *overlay) mutations() []backend.Mutation {
	mutations := make([]backend.Mutation, 0, len(o.ranges)+len(o.keys))
	for _, r := range o.ranges {
		mutations = append(mutations, backend.Mutation{Kind: backend.DeleteRange, Key: r.Start, Value: r.End})
	}
	for _, w := range o.within(All(), false) {
		m := backend.Mutation{Kind: backend.Delete, Key: []byte(w.key)}
		if !w.deleted {
			m.Kind, m.Value, m.TTL = backend.Put, w.value, w.ttl
		}
		mutations = append(mutations, m)
	}
	return mutations
}
