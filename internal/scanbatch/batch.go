// Package scanbatch holds the items of a scan on their way from the stored entries to
// the caller: the [Batch] that they are read into, the [View] that decides which entries
// the scan shows, and [Filler], which iterators implement to fill a batch.
package scanbatch

import (
	"unsafe"

	"github.com/kvd-db/kvd/internal/kv"
)

// Batch holds the items that a scan has read, in scan order. Keys are stored one after
// the other in Data, so that reading an item allocates nothing. A value is copied to
// Data too, unless it lies in an immutable block: then the item refers to the block,
// and the batch keeps the block in memory.
//
// The zero value has no room: see Reset. Not safe for concurrent use. The slices of an
// item are read-only.
type Batch struct {
	Items []kv.Item
	Data  []byte
	// Apart lists the indexes of items whose value is still a ValuePointer. The caller
	// replaces each with Replace.
	Apart []int32
	// Near counts the items read from blocks that were already in memory.
	Near int
	// KeysOnly omits the values.
	KeysOnly bool

	// Large, if positive, is the length above which a value is omitted: see
	// Deferred. Reset keeps it.
	Large int

	maxItems, maxBytes int
	size               int // bytes of keys and values, including the length of separated values
	lent               int // bytes of blocks that the batch keeps in memory
	most               int // most items that Items has held since Release
	// Steps is how many more entries a walk may examine, visible or not. It bounds the
	// time that a walk over deleted entries takes before it returns.
	Steps int

	staged staged
}

// staged is a key after the last item, with its newest version so far.
type staged struct {
	at, key int
	entry   kv.Entry // without key and value
	found   bool
}

const (
	// stepsPerItem is how many entries a walk may examine for each item that the Batch
	// has room for. Guessed: about 10 µs for small batches, 1 ms for the largest.
	stepsPerItem = 64
	// lentTimes bounds the blocks that a Batch keeps in memory, as a multiple of the
	// bytes that it has room for: a block may contribute a single item.
	lentTimes = 2
)

// Reset empties b and gives it room for this many items and bytes. The last item may
// exceed the bytes, so one item always fits. The old contents of Data and Items are
// overwritten.
func (b *Batch) Reset(items, bytes int, keysOnly bool) {
	b.most = max(b.most, len(b.Items))
	b.Items, b.Data, b.Apart, b.KeysOnly = b.Items[:0], b.Data[:0], b.Apart[:0], keysOnly
	b.Near, b.size, b.lent = 0, 0, 0
	b.maxItems, b.maxBytes, b.Steps = items, bytes, stepsPerItem*items
}

// Release drops the references to all blocks and keeps the batch's own memory for
// reuse.
func (b *Batch) Release() {
	b.Reset(0, 0, false)
	clear(b.Items[:b.most])
	b.most = 0
}

// Full reports whether b takes no more items.
func (b *Batch) Full() bool {
	return len(b.Items) >= b.maxItems || b.size >= b.maxBytes || b.Steps <= 0
}

// Room returns how many more items and bytes fit in b.
func (b *Batch) Room() (items, bytes int) { return b.maxItems - len(b.Items), b.maxBytes - b.size }

// Pushed records items that the caller wrote directly after the last one, laid out as
// by Push: how many items, how many bytes after Data, and the total length of their
// keys and values.
func (b *Batch) Pushed(items, data, bytes int) {
	b.Items, b.Data = b.Items[:len(b.Items)+items], b.Data[:len(b.Data)+data]
	b.size += bytes
}

// Size returns the total length of all keys and values.
func (b *Batch) Size() int { return b.size }

// Lend reports whether values may stay in a block of this many bytes, which b then
// keeps in memory.
func (b *Batch) Lend(bytes int) bool {
	if b.lent+bytes > lentTimes*b.maxBytes {
		return false
	}
	b.lent += bytes
	return true
}

// Add appends e. It copies the key, and the value too unless its block was lent.
func (b *Batch) Add(e *kv.Entry, lent bool) {
	at := len(b.Data)
	b.Data = append(b.Data, e.Key...)
	value := e.Value
	if b.defers(value, e.Apart) {
		value = deferredValue
	} else if !b.KeysOnly && !lent {
		b.Data = append(b.Data, value...)
		value = b.Data[at+len(e.Key):]
	}
	b.Push(b.Data[at:at+len(e.Key)], value, e.Seq, e.Expiry, e.Apart)
}

// Push appends an item without copying: key must lie in Data; value, unless b holds
// keys only, must lie in Data or in a lent block. If apart is set, value must be a
// valid ValuePointer.
func (b *Batch) Push(key, value []byte, version kv.SeqNum, expiry uint64, apart bool) {
	n := len(b.Items)
	if n == cap(b.Items) {
		b.Items = append(b.Items, kv.Item{})
	}
	b.Items = b.Items[:n+1]
	item := &b.Items[n]
	item.Key, item.Version, item.Expiry = key[:len(key):len(key)], version, expiry
	switch {
	case b.KeysOnly:
		item.Value = nil
		b.size += len(key)
	case apart:
		item.Value = value
		p, _ := kv.ParseValuePointer(value) // validated by the reader of the entry
		if b.Large > 0 && int(p.Length) > b.Large {
			item.Value = deferredValue
			b.size += len(key)
			return
		}
		b.Apart = append(b.Apart, int32(n))
		b.size += len(key) + int(p.Length)
	default:
		item.Value = value[:len(value):len(value)]
		b.size += len(key) + len(value)
	}
}

// Defers reports whether a value of this length, stored with its key, is omitted.
func (b *Batch) Defers(bytes int) bool { return b.Large > 0 && bytes > b.Large && !b.KeysOnly }

func (b *Batch) defers(value []byte, apart bool) bool { return !apart && b.Defers(len(value)) }

// DeferredValue is passed to Push in place of an omitted value.
func DeferredValue() []byte { return deferredValue }

// deferredValue is recognised by its address.
var deferredValue = make([]byte, 1)

// Deferred reports whether a Batch omitted the value of the item. The caller must read
// it separately.
func Deferred(i *kv.Item) bool { return isDeferred(i.Value) }

func isDeferred(value []byte) bool { return len(value) == 1 && &value[0] == &deferredValue[0] }

// Footprint returns the bytes of memory that b keeps.
func (b *Batch) Footprint() int {
	return cap(b.Data) + cap(b.Items)*int(unsafe.Sizeof(kv.Item{})) + b.lent
}

// Replace replaces the pointer of item i by a copy of value.
func (b *Batch) Replace(i int32, value []byte) {
	at := len(b.Data)
	b.Data = append(b.Data, value...)
	b.Items[i].Value = b.Data[at:len(b.Data):len(b.Data)]
}

// Stage begins an item. Version then adds its versions, in any order.
func (b *Batch) Stage(key []byte) {
	b.staged = staged{at: len(b.Data), key: len(key)}
	b.Data = append(b.Data, key...)
	b.Data = b.Data[:b.staged.at]
}

// StagedKey returns the staged key, borrowed until the next call.
func (b *Batch) StagedKey() []byte {
	s := &b.staged
	return b.Data[s.at : s.at+s.key][:s.key:s.key]
}

// Version adds a version of the staged key; the newest one wins.
func (b *Batch) Version(e *kv.Entry) {
	s := &b.staged
	if s.found && s.entry.Seq >= e.Seq {
		return
	}
	s.found, s.entry = true, kv.Entry{Seq: e.Seq, Kind: e.Kind, Apart: e.Apart, Expiry: e.Expiry}
	if b.defers(e.Value, e.Apart) {
		s.entry.Value = deferredValue
	} else if !b.KeysOnly {
		data := append(b.Data[:s.at+s.key], e.Value...)
		s.entry.Value = data[s.at+s.key:]
		b.Data = data[:s.at]
	}
}

// Commit appends the staged key as an item if its newest version is visible to v.
func (b *Batch) Commit(v *View) {
	s := &b.staged
	e := &s.entry
	e.Key = b.StagedKey()
	if !s.found || !v.Shows(e) {
		return
	}
	b.Data = b.Data[:s.at+s.key]
	if !isDeferred(e.Value) {
		b.Data = b.Data[:s.at+s.key+len(e.Value)]
	}
	b.Push(e.Key, e.Value, e.Seq, e.Expiry, e.Apart)
}

// Filler is an Iterator that fills a Batch at less cost than single moves do.
type Filler interface {
	kv.Iterator
	// Fill walks entries in the iterator's direction, up to bound (nil: no bound),
	// until b is full, and adds to b those that v shows. It returns how many entries it
	// passed and leaves the iterator on the next one, if there is one.
	//
	// REQUIRES: the iterator has passed no version of its current key that v sees. Fill
	// leaves the iterator in such a position.
	Fill(b *Batch, v *View, bound []byte) (passed int)
}
