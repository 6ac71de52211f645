package valuefile

import "github.com/kvd-db/kvd/internal/kv"

const (
	// windowEntries and windowBytes bound what a resolved iterator reads at once.
	// Guessed: deep enough for the disk, little beside what a scan holds anyway.
	windowEntries = 64
	windowBytes   = 128 << 10
)

// Resolve returns an iterator over the entries of it with their values, wherever
// these lie; with keysOnly, with no values but none to wait for either.
//
// As long as entries bring their values along they pass through. From the first that
// does not on, some entries are gathered, twice as many each time the walk goes on,
// and their values are read together.
//
// Ownership: Resolve takes it; Close closes it. Errors: those of it, and those of
// reading a value when the walk arrives at its entry, end the walk.
func (s *Set) Resolve(it kv.Iterator, keysOnly bool) kv.Iterator {
	return &resolved{it: it, set: s, keysOnly: keysOnly}
}

type resolved struct {
	it       kv.Iterator
	set      *Set
	keysOnly bool

	backward bool
	at       *kv.Entry // where the walk stands; nil: nowhere
	err      error     // of a value
	entry    kv.Entry  // with keysOnly

	window  []kv.Entry // entries from the current one on; it stands behind them
	pos     int        // of the current one
	reach   int        // entries that the next window may have
	kept    []byte     // their keys, and the values that came along
	fetches []Fetch    // of the window
	owners  []int      // of each fetch, the entry
}

func (r *resolved) Valid() bool      { return r.at != nil }
func (r *resolved) Entry() *kv.Entry { return r.at }

func (r *resolved) Err() error {
	if r.err != nil {
		return r.err
	}
	if r.at != nil {
		return nil // it may be ahead of the walk
	}
	return r.it.Err()
}

func (r *resolved) First() bool { return r.begin(false, r.it.First()) }

func (r *resolved) SeekGE(key []byte) bool { return r.begin(false, r.it.SeekGE(key)) }

func (r *resolved) Last() bool { return r.begin(true, r.it.Last()) }

func (r *resolved) SeekLT(key []byte) bool { return r.begin(true, r.it.SeekLT(key)) }

func (r *resolved) begin(backward, valid bool) bool {
	r.backward, r.err, r.reach = backward, nil, 1
	r.window, r.pos = r.window[:0], 0
	return r.settle(valid)
}

func (r *resolved) Next() bool { return r.move(false) }

func (r *resolved) Prev() bool { return r.move(true) }

func (r *resolved) move(backward bool) bool {
	if r.at == nil {
		return false
	}
	if r.backward != backward {
		panic("valuefile: a walk turned round without being positioned anew")
	}
	if r.pos+1 < len(r.window) {
		r.pos++
		return r.arrive()
	}
	if len(r.window) > 0 { // it stands behind the window
		r.window = r.window[:0]
		return r.settle(r.it.Valid())
	}
	return r.settle(r.step())
}

// step moves it on.
func (r *resolved) step() bool {
	if r.backward {
		return r.it.Prev()
	}
	return r.it.Next()
}

// settle makes the entry that it stands on the current one.
func (r *resolved) settle(valid bool) bool {
	r.at, r.pos = nil, 0
	if !valid {
		return false
	}
	e := r.it.Entry()
	switch {
	case r.keysOnly:
		r.entry = *e
		r.entry.Value, r.entry.Apart = nil, false
		r.at = &r.entry
	case e.Apart:
		r.gather()
		return r.arrive()
	default:
		r.at = e
	}
	return true
}

// arrive makes the entry at pos of the window the current one.
func (r *resolved) arrive() bool {
	e := &r.window[r.pos]
	if e.Apart { // still: its value could not be read
		for i, owner := range r.owners {
			if owner == r.pos {
				r.err = r.fetches[i].Err
			}
		}
		r.window, r.at = r.window[:0], nil
		return false
	}
	r.at = e
	return true
}

// gather fills the window, from the entry on that it stands on, and reads the values
// that are apart.
func (r *resolved) gather() {
	r.kept, r.owners, r.fetches = r.kept[:0], r.owners[:0], r.fetches[:0]
	size := 0
	for valid := true; valid && len(r.window) < r.reach && size < windowBytes; valid = r.step() {
		e := *r.it.Entry()
		e.Key = r.keep(e.Key)
		if e.Apart {
			p, ok := kv.ParseValuePointer(e.Value)
			size += int(p.Length)
			r.fetch(p, ok)
		} else {
			e.Value = r.keep(e.Value)
			size += len(e.Value)
		}
		r.window = append(r.window, e)
	}
	r.reach = min(2*r.reach, windowEntries)
	r.set.ReadBatch(r.fetches)
	for i, owner := range r.owners {
		if f := &r.fetches[i]; f.Err == nil {
			r.window[owner].Value, r.window[owner].Apart = f.Value, false
		}
	}
}

// keep copies b, which is borrowed, for as long as the window lasts.
func (r *resolved) keep(b []byte) []byte {
	if b == nil {
		return nil
	}
	from := len(r.kept)
	r.kept = append(r.kept, b...)
	return r.kept[from:len(r.kept):len(r.kept)]
}

// fetch notes that the entry that will be added to the window needs a value.
func (r *resolved) fetch(p kv.ValuePointer, ok bool) {
	r.owners = append(r.owners, len(r.window))
	if n := len(r.fetches); n < cap(r.fetches) { // with the room of its last value
		r.fetches = r.fetches[:n+1]
		r.fetches[n].Pointer, r.fetches[n].Err = p, nil
	} else {
		r.fetches = append(r.fetches, Fetch{Pointer: p})
	}
	if !ok {
		panic("valuefile: an entry with a malformed pointer passed the sstable's reader")
	}
}

func (r *resolved) Close() error {
	r.at, r.window, r.fetches, r.kept = nil, nil, nil, nil
	if err := r.it.Close(); r.err == nil {
		r.err = err
	}
	return r.err
}
