package kv

import "unsafe"

// Batch is items that a scan has read, in the order of the scan. Their keys lie one
// after the other in Data, so that reading an item allocates nothing. A value lies
// there too, or where it was found, if that is a block that never changes: then it is
// not copied, and the batch keeps the block in memory.
//
// The zero value has no room: see Reset. A Batch is used by one goroutine at a
// time. Nobody may write to the slices of an item.
type Batch struct {
	Items []Item
	Data  []byte
	// Apart are the numbers of those items whose values are pointers yet, to be
	// replaced: see Replace.
	Apart []int32
	// Near is how many items came out of blocks that were in memory.
	Near int
	// KeysOnly leaves the values out.
	KeysOnly bool

	// Large, if positive, is the length above which values are left out: see
	// Item.Deferred. It outlasts Reset.
	Large int

	maxItems, maxBytes int
	size               int // bytes of keys and values, also of those that are apart
	lent               int // bytes of blocks that the batch keeps in memory
	most               int // items that the memory of Items was used for
	// Steps is how many entries may still be looked at, shown or not: so that a
	// walk over what was deleted comes back from time to time.
	Steps int

	staged staged
}

// staged is a key behind the last item, with the newest version of it so far.
type staged struct {
	at, key int
	entry   Entry // without key and value
	found   bool
}

const (
	// stepsPerItem is how many entries a Batch looks at for each item that it has room
	// for, before it takes what it got. Guessed: some 10 µs for small ones, 1 ms for the
	// largest.
	stepsPerItem = 64
	// lentTimes bounds what blocks a Batch keeps in memory, in times the bytes of items
	// that it has room for: of a block it may show one item alone.
	lentTimes = 2
)

// Reset empties b and gives it room for so many items, and so many bytes. The last
// item may reach behind them, so there is always room for one. What Data and Items
// held is overwritten.
func (b *Batch) Reset(items, bytes int, keysOnly bool) {
	b.most = max(b.most, len(b.Items))
	b.Items, b.Data, b.Apart, b.KeysOnly = b.Items[:0], b.Data[:0], b.Apart[:0], keysOnly
	b.Near, b.size, b.lent = 0, 0, 0
	b.maxItems, b.maxBytes, b.Steps = items, bytes, stepsPerItem*items
}

// Release lets go of all blocks, and keeps the memory for the next use.
func (b *Batch) Release() {
	b.Reset(0, 0, false)
	clear(b.Items[:b.most])
	b.most = 0
}

// Full reports whether no more items belong in b.
func (b *Batch) Full() bool {
	return len(b.Items) >= b.maxItems || b.size >= b.maxBytes || b.Steps <= 0
}

// Room returns how many items and how many bytes b has room for yet.
func (b *Batch) Room() (items, bytes int) { return b.maxItems - len(b.Items), b.maxBytes - b.size }

// Pushed says that so many items were written behind the last one, as Push does it,
// and so many bytes behind Data, and what the keys and values have together.
func (b *Batch) Pushed(items, data, bytes int) {
	b.Items, b.Data = b.Items[:len(b.Items)+items], b.Data[:len(b.Data)+data]
	b.size += bytes
}

// Size returns the bytes of all keys and values.
func (b *Batch) Size() int { return b.size }

// Lend reports whether values may stay where they lie, in a block of so many bytes
// that b keeps in memory then.
func (b *Batch) Lend(bytes int) bool {
	if b.lent+bytes > lentTimes*b.maxBytes {
		return false
	}
	b.lent += bytes
	return true
}

// Add adds e to the end of b. Its key is copied, and its value too, unless the block
// that it lies in was lent.
func (b *Batch) Add(e *Entry, lent bool) {
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

// Push adds an item whose slices are kept: the key must lie in Data, the value there,
// if b is to have values, or in a block that was lent. A value that is apart must be a
// pointer.
func (b *Batch) Push(key, value []byte, version SeqNum, expiry uint64, apart bool) {
	n := len(b.Items)
	if n == cap(b.Items) {
		b.Items = append(b.Items, Item{})
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
		p, _ := ParseValuePointer(value) // whoever brings the entry has checked it
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

// Defers reports whether a value that lies beside its key is left out.
func (b *Batch) Defers(bytes int) bool { return b.Large > 0 && bytes > b.Large && !b.KeysOnly }

func (b *Batch) defers(value []byte, apart bool) bool { return !apart && b.Defers(len(value)) }

// DeferredValue is what Push takes in place of a value that is left out.
func DeferredValue() []byte { return deferredValue }

// deferredValue is known by its address.
var deferredValue = make([]byte, 1)

// Deferred reports whether a batch left out the value of the item, which is to be read
// for itself.
func (i *Item) Deferred() bool { return isDeferred(i.Value) }

func isDeferred(value []byte) bool { return len(value) == 1 && &value[0] == &deferredValue[0] }

// Footprint returns the bytes that b keeps in memory.
func (b *Batch) Footprint() int {
	return cap(b.Data) + cap(b.Items)*int(unsafe.Sizeof(Item{})) + b.lent
}

// Replace puts a value in the place of the pointer of item i. The value is copied.
func (b *Batch) Replace(i int32, value []byte) {
	at := len(b.Data)
	b.Data = append(b.Data, value...)
	b.Items[i].Value = b.Data[at:len(b.Data):len(b.Data)]
}

// Stage begins an item: its versions come next, in any order.
func (b *Batch) Stage(key []byte) {
	b.staged = staged{at: len(b.Data), key: len(key)}
	b.Data = append(b.Data, key...)
	b.Data = b.Data[:b.staged.at]
}

// StagedKey returns the key that was staged, borrowed until the next call.
func (b *Batch) StagedKey() []byte {
	s := &b.staged
	return b.Data[s.at : s.at+s.key][:s.key:s.key]
}

// Version offers a version of the staged key; the newest one stays.
func (b *Batch) Version(e *Entry) {
	s := &b.staged
	if s.found && s.entry.Seq >= e.Seq {
		return
	}
	s.found, s.entry = true, Entry{Seq: e.Seq, Kind: e.Kind, Apart: e.Apart, Expiry: e.Expiry}
	if b.defers(e.Value, e.Apart) {
		s.entry.Value = deferredValue
	} else if !b.KeysOnly {
		data := append(b.Data[:s.at+s.key], e.Value...)
		s.entry.Value = data[s.at+s.key:]
		b.Data = data[:s.at]
	}
}

// Commit makes the staged key an item, if its newest version is shown to v.
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

// Filler is an Iterator that can fill a Batch at less cost than its moves one by
// one.
type Filler interface {
	Iterator
	// Fill goes on over the entries whose keys the walk meets before bound, all if it
	// is nil, until b is full, and adds to b what the view shows of them. It returns
	// how many entries it went past, and stands on the next one, if it is Valid.
	//
	// REQUIRES: no version that v sees of the key it stands at was met. Fill leaves
	// the iterator so too.
	Fill(b *Batch, v *View, bound []byte) (passed int)
}
