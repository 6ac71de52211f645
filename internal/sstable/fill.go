package sstable

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// fill is the state of one Fill.
type fill struct {
	it     *Iterator
	b      *scanbatch.Batch
	v      *scanbatch.View
	bound  []byte
	passed int // entries
	// met: a visible version of the previous entry's key was found; the remaining versions
	// are older. last is that key without the block's prefix.
	met  bool
	last []byte
}

// Fill implements scanbatch.Filler.
//
// Cost: one copy of each key that is shown, and of its value unless the block is
// cached. Keys are compared with the bound only in the block that contains it.
func (it *Iterator) Fill(b *scanbatch.Batch, v *scanbatch.View, bound []byte) (passed int) {
	if !it.valid {
		return 0
	}
	if it.walk == backward {
		return it.fillBack(b, v, bound)
	}
	f := fill{it: it, b: b, v: v, bound: bound}
	for first := it.at; f.block(first) && f.nextBlock(); first = 0 {
	}
	return f.passed
}

// nextBlock enters the next block, which may continue the versions of the last key.
func (f *fill) nextBlock() bool {
	it := f.it
	it.before = append(append(it.before[:0], it.block.prefix()...), f.last...)
	if !it.enter(it.blockAt + 1) {
		return false
	}
	if f.met {
		f.last, f.met = bytes.CutPrefix(it.before, it.block.prefix())
	}
	return true
}

// block processes the current block from entry first to its end. It returns false if
// Fill ends within the block, at its limit or on an error.
func (f *fill) block(first int) bool {
	it, b, block := f.it, f.b, &f.it.block
	prefix := block.prefix()
	near := f.bound != nil && it.r.index.mayReach(it.blockAt, f.bound) // keys may be at or after it
	prints := block.data[block.fingerprints:][:block.entries]
	before := len(b.Items)
	lent := it.lend(b)
	copies := !lent && !b.KeysOnly
	covered := len(f.v.Covers) > 0
	met, last, passed := f.met, f.last, f.passed
	simple := lent && !near && it.simple(f.v)
	var h header
	for i := first; i < block.entries; i++ {
		if simple && met && i > first {
			if n := it.puts(b, f.v, i, +1, min(block.entries-i, b.Steps-passed)); n > 0 {
				i, passed = i+n, passed+n
				block.header(i-1, &h) // it was well formed
				if last = block.suffix(&h); i == block.entries {
					break
				}
			}
		}
		if !block.header(i, &h) {
			f.passed = passed
			return it.malformed()
		}
		suffix := block.suffix(&h)
		// Versions of one key have equal fingerprints, which are cheap to compare.
		if met && (i == first || prints[i] == prints[i-1]) && bytes.Equal(suffix, last) {
			passed++ // an older version
			continue
		}
		// The key, followed by the value, is appended after the last item; if it is not shown,
		// the next one overwrites it.
		rest := suffix
		defers := copies && !h.apart && b.Defers(h.end-h.valueAt)
		if copies && !defers {
			rest = block.data[h.suffixAt:h.end]
		}
		at := len(b.Data)
		data := append(append(b.Data, prefix...), rest...)
		key := data[at : at+len(prefix)+len(suffix)]
		if b.Full() || passed >= b.Steps || near && bytes.Compare(key, f.bound) >= 0 {
			b.Data = data[:at]
			f.met, f.last, f.passed = met, last, passed
			it.came(b, before)
			it.read(i)
			return false
		}
		passed++
		last, met = suffix, f.v.Sees(h.seq, h.kind)
		if !met || h.kind != kv.KindPut || h.expiry != 0 && h.expiry <= f.v.Now || covered && f.v.Hides(key, h.seq) {
			b.Data = data[:at]
			continue
		}
		value := data[at+len(key):]
		if lent {
			value = block.value(&h)
		} else if defers {
			value = scanbatch.DeferredValue()
		}
		if h.apart && !b.KeysOnly {
			if _, ok := kv.ParseValuePointer(value); !ok {
				b.Data = data[:at]
				f.passed = passed - 1
				return it.malformed()
			}
		}
		b.Data = data
		b.Push(key, value, h.seq, h.expiry, h.apart)
	}
	f.met, f.last, f.passed = met, last, passed
	it.came(b, before)
	return true
}

// simple reports whether puts can handle the current block.
func (it *Iterator) simple(v *scanbatch.View) bool {
	return len(v.Covers) == 0 && offsetBytes(len(it.block.data)) == 2
}

// puts adds up to most entries from i on, in steps of +1 or -1, while they are plain
// puts: visible to the view, without expiry or pointer, and of a key other than the
// previous entry's. It returns how many it added.
//
// REQUIRES: simple, values of the block are lent, i > 0.
func (it *Iterator) puts(b *scanbatch.Batch, v *scanbatch.View, i, step, most int) (n int) {
	block := &it.block
	items, bytes := b.Room()
	most = min(most, items)
	if most <= 0 || bytes <= 0 {
		return 0
	}
	prefix := block.prefix()
	prints, offsets := block.data[block.fingerprints:][:block.entries], block.data[block.offsets:]
	b.Items, b.Data = slices.Grow(b.Items, most), slices.Grow(b.Data, min(most*(len(prefix)+keyGuess), bytes))
	to, data := b.Items[len(b.Items):][:most], b.Data[len(b.Data):cap(b.Data)]
	room, free := bytes, len(data)
	for n < most && room > 0 {
		o := binary.LittleEndian.Uint32(offsets[2*i:])
		at, end := int(o&0xffff), int(o>>16)
		if i == block.entries-1 {
			end = len(block.data)
		}
		if prints[i] == prints[i-1] || at+minEntryBytes > end || end > len(block.data) {
			break
		}
		p := block.data[at:end:end]
		trailer, suffix := binary.LittleEndian.Uint64(p), int(p[8])
		seq := kv.SeqNum(trailer >> 8)
		length := len(prefix) + suffix
		if byte(trailer) != byte(kv.KindPut) || seq-1 >= v.At || suffix >= 0x80 || minEntryBytes+suffix > len(p) ||
			uint(length-1) >= kv.MaxKeyBytes || length > len(data) {
			break
		}
		key := data[:length:length]
		data = data[length:]
		copy(key, prefix)
		copy(key[len(prefix):], p[minEntryBytes:])
		item := &to[n]
		item.Key, item.Value, item.Version, item.Expiry = key, p[minEntryBytes+suffix:], seq, 0
		room -= length + len(item.Value)
		i += step
		n++
	}
	b.Pushed(n, free-len(data), bytes-room)
	return n
}

// keyGuess is the estimated length of a key without the prefix of its block.
const keyGuess = 16

// lend reports whether the batch may borrow values of the current block.
func (it *Iterator) lend(b *scanbatch.Batch) bool {
	return it.cached && !b.KeysOnly && b.Lend(len(it.block.data))
}

// came adds the items added since the count before to b.Near if their block is cached.
func (it *Iterator) came(b *scanbatch.Batch, before int) {
	if it.cached {
		b.Near += len(b.Items) - before
	}
}

// fillBack is Fill on a backward walk.
func (it *Iterator) fillBack(b *scanbatch.Batch, v *scanbatch.View, bound []byte) (passed int) {
	e := &it.entry
	lentAt, lent, simple := -1, false, false
	for it.valid && !b.Full() && passed < b.Steps && (bound == nil || bytes.Compare(e.Key, bound) > 0) {
		if it.blockAt != lentAt {
			lentAt, lent = it.blockAt, it.lend(b)
			simple = lent && it.simple(v) && (bound == nil || it.r.index.allAfter(it.blockAt, bound))
		}
		if simple && it.at > 0 {
			if n := it.puts(b, v, it.at, -1, min(it.at, b.Steps-passed)); n > 0 {
				passed += n
				b.Near += n
				it.at -= n - 1
				it.stepBack()
				continue
			}
		}
		if it.newerBefore() {
			n, ok := it.versionsBack(b, v)
			if passed += n; !ok {
				return passed
			}
			continue
		}
		if v.Sees(e.Seq, e.Kind) && v.Shows(e) {
			before := len(b.Items)
			b.Add(e, lent)
			it.came(b, before)
		}
		passed++
		it.stepBack()
	}
	return passed
}

// newerBefore reports whether the entry before may be a newer version of the current
// key.
func (it *Iterator) newerBefore() bool {
	if it.at == 0 {
		return true
	}
	var h header
	b := &it.block
	return !b.header(it.at-1, &h) || bytes.Equal(b.suffix(&h), it.entry.Key[len(b.prefix()):])
}

// versionsBack steps back over all versions of a key, the oldest first. On an error it
// reports false and commits nothing, because a newer version may not have been read.
func (it *Iterator) versionsBack(b *scanbatch.Batch, v *scanbatch.View) (passed int, ok bool) {
	e := &it.entry
	b.Stage(e.Key)
	for ok := true; ok && bytes.Equal(e.Key, b.StagedKey()); passed++ {
		if v.Sees(e.Seq, e.Kind) {
			b.Version(e)
		}
		ok = it.stepBack()
	}
	if it.err != nil {
		return passed, false
	}
	before := len(b.Items)
	b.Commit(v)
	it.came(b, before)
	return passed, true
}
