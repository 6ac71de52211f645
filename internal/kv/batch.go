package kv

// Batch is items that a scan has read ahead, in the order of the scan. Their keys
// and values lie one after the other in Data, so that reading an item is a copy of
// its bytes and no allocation.
//
// The zero value has no room: see Reset. A Batch is used by one goroutine at a
// time.
type Batch struct {
	Items []BatchItem
	Data  []byte
	// KeysOnly leaves the values out.
	KeysOnly bool

	maxItems, maxBytes int
	apart              int // bytes of values that are apart: they will be in Data, too
	// Steps is how many entries may still be looked at, shown or not: so that a
	// walk over what was deleted comes back from time to time.
	Steps int

	staged staged
}

// BatchItem says where in Data an item lies: the key, and the value behind it.
type BatchItem struct {
	At, Key, Value uint32 // where, and the lengths
	Apart          bool   // the value is a pointer, to be replaced: see Replace
	Version        SeqNum
	Expiry         uint64 // as in Entry
}

// staged is a key behind the last item, with the newest version of it so far.
type staged struct {
	at, key int
	entry   Entry // without key and value
	found   bool
}

// stepsPerItem is how many entries a Batch looks at for each item that it has room
// for, before it takes what it got. Guessed: some 10 µs for small ones, 1 ms for the
// largest.
const stepsPerItem = 64

// Reset empties b and gives it room for so many items, and so many bytes. The last
// item may reach behind them, so there is always room for one. What Data and Items
// held is overwritten.
func (b *Batch) Reset(items, bytes int, keysOnly bool) {
	b.Items, b.Data, b.KeysOnly = b.Items[:0], b.Data[:0], keysOnly
	b.apart = 0
	b.maxItems, b.maxBytes, b.Steps = items, bytes, stepsPerItem*items
}

// Full reports whether no more items belong in b.
func (b *Batch) Full() bool {
	return len(b.Items) >= b.maxItems || len(b.Data)+b.apart >= b.maxBytes || b.Steps <= 0
}

// Key returns the key of item i, borrowed until Reset.
func (b *Batch) Key(i int) []byte {
	r := &b.Items[i]
	return b.Data[r.At : r.At+r.Key : r.At+r.Key]
}

// Item fills item with item i. Its slices are borrowed until Reset.
func (b *Batch) Item(i int, item *Item) {
	r := &b.Items[i]
	valueAt := r.At + r.Key
	item.Key = b.Data[r.At:valueAt:valueAt]
	item.Value = nil
	if !b.KeysOnly {
		item.Value = b.Data[valueAt : valueAt+r.Value : valueAt+r.Value]
	}
	item.Version, item.Expiry = r.Version, r.Expiry
}

// Add copies e to the end of b.
func (b *Batch) Add(e *Entry) {
	at, value := len(b.Data), e.Value
	if b.KeysOnly {
		value = nil
	}
	b.Data = append(append(b.Data, e.Key...), value...)
	b.Items = append(b.Items, BatchItem{
		At: uint32(at), Key: uint32(len(e.Key)), Value: uint32(len(value)), Apart: b.owes(e), Version: e.Seq, Expiry: e.Expiry,
	})
}

// owes reports whether the value of e is to be read yet, and counts it then.
func (b *Batch) owes(e *Entry) bool {
	if b.KeysOnly || !e.Apart {
		return false
	}
	p, _ := ParseValuePointer(e.Value) // whoever brings the entry has checked it
	b.Owe(p)
	return true
}

// Owe counts the value of an item with a pointer as if it were there.
func (b *Batch) Owe(p ValuePointer) { b.apart += int(p.Length) }

// Owing reports whether values of items are to be replaced yet.
func (b *Batch) Owing() bool { return b.apart > 0 }

// Replace puts a value in the place of the pointer of item i. The value is copied.
func (b *Batch) Replace(i int, value []byte) {
	r := &b.Items[i]
	at, key := len(b.Data), b.Key(i)
	b.Data = append(append(b.Data, key...), value...)
	r.At, r.Value, r.Apart = uint32(at), uint32(len(value)), false
	b.apart -= len(value)
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
	if !b.KeysOnly {
		data := append(b.Data[:s.at+s.key], e.Value...)
		s.entry.Value = data[s.at+s.key:]
		b.Data = data[:s.at]
	}
}

// Commit makes the staged key an item, if its newest version is shown to v.
func (b *Batch) Commit(v *View) {
	s := &b.staged
	s.entry.Key = b.StagedKey()
	if !s.found || !v.Shows(&s.entry) {
		return
	}
	size := s.key + len(s.entry.Value)
	b.Items = append(b.Items, BatchItem{
		At: uint32(s.at), Key: uint32(s.key), Value: uint32(len(s.entry.Value)), Apart: b.owes(&s.entry),
		Version: s.entry.Seq, Expiry: s.entry.Expiry,
	})
	b.Data = b.Data[:s.at+size]
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
