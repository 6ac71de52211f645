package sstable

import (
	"bytes"

	"github.com/kvd-db/kvd/internal/kv"
)

// fill is a Fill under way.
type fill struct {
	it     *Iterator
	b      *kv.Batch
	v      *kv.View
	bound  []byte
	passed int // entries
	// met: a visible version of the key of the entry before was met, all others are
	// older. last is what that key has behind the block's prefix.
	met  bool
	last []byte
}

// Fill implements kv.Filler.
//
// Cost: one copy of what is shown. The bound is compared with keys in its own block
// alone.
func (it *Iterator) Fill(b *kv.Batch, v *kv.View, bound []byte) (passed int) {
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

// nextBlock goes on to the next block, where the versions of a key may go on too.
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

// block goes from entry first on to the end of the current block. It returns false if
// Fill ends before, where it should or on an error.
func (f *fill) block(first int) bool {
	it, b, block := f.it, f.b, &f.it.block
	prefix := block.prefix()
	near := f.bound != nil && it.r.index.mayReach(it.blockAt, f.bound) // keys may lie behind it
	var h header
	for i := first; i < block.entries; i++ {
		if !block.header(i, &h) {
			return it.malformed()
		}
		suffix := block.suffix(&h)
		if f.met && bytes.Equal(suffix, f.last) {
			f.passed++ // an older version
			continue
		}
		// The key is laid out behind the last item; if it is not shown, the next one is
		// written over it.
		at := len(b.Data)
		data := append(append(b.Data, prefix...), suffix...)
		b.Data = data[:at]
		key := data[at:]
		if b.Full() || f.passed >= b.Steps || near && bytes.Compare(key, f.bound) >= 0 {
			it.read(i)
			return false
		}
		f.passed++
		f.last, f.met = suffix, f.v.Sees(h.seq, h.kind)
		if !f.met || h.kind != kv.KindPut || h.expiry != 0 && h.expiry <= f.v.Now ||
			len(f.v.Covers) > 0 && f.v.Hides(key, h.seq) {
			continue
		}
		keyEnd, apart := len(data), false
		if !b.KeysOnly {
			value := block.value(&h)
			if apart = h.apart; apart {
				pointer, ok := kv.ParseValuePointer(value)
				if !ok {
					return it.malformed()
				}
				b.Owe(pointer)
			}
			data = append(data, value...)
		}
		b.Data = data
		b.Items = append(b.Items, kv.BatchItem{
			At: uint32(at), Key: uint32(keyEnd - at), Value: uint32(len(data) - keyEnd), Apart: apart, Version: h.seq, Expiry: h.expiry,
		})
	}
	return true
}

// fillBack is Fill on a backward walk.
func (it *Iterator) fillBack(b *kv.Batch, v *kv.View, bound []byte) (passed int) {
	e := &it.entry
	for it.valid && !b.Full() && passed < b.Steps && (bound == nil || bytes.Compare(e.Key, bound) > 0) {
		if it.newerBefore() {
			n, ok := it.versionsBack(b, v)
			if passed += n; !ok {
				return passed
			}
			continue
		}
		if v.Sees(e.Seq, e.Kind) && v.Shows(e) {
			b.Add(e)
		}
		passed++
		it.stepBack()
	}
	return passed
}

// newerBefore reports whether a newer version of the current key may stand before it.
func (it *Iterator) newerBefore() bool {
	if it.at == 0 {
		return true
	}
	var h header
	b := &it.block
	return !b.header(it.at-1, &h) || bytes.Equal(b.suffix(&h), it.entry.Key[len(b.prefix()):])
}

// versionsBack steps back over all versions of a key, the oldest first. It reports
// false on an error, behind which there may be a newer one.
func (it *Iterator) versionsBack(b *kv.Batch, v *kv.View) (passed int, ok bool) {
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
	b.Commit(v)
	return passed, true
}
