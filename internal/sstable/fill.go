package sstable

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// fill is a Fill under way. It reads entries as Iterator.read does, but lays each
// key out behind the last item of the batch: if the entry is shown it is an item
// already, and if not the next key is written over it. So there is always the key
// before to take shared bytes from and to compare with, and nothing is copied
// twice.
type fill struct {
	it    *Iterator
	b     *kv.Batch
	v     *kv.View
	bound []byte

	at     int // of the next entry in the block
	passed int // entries
	// The key of the entry before lies in b.Data at keyAt. shareable is keyLen, or 0
	// at the beginning of a block, whose first entry shares nothing.
	keyAt, keyLen, shareable int
	// met: a visible version of the key was met, all others are older.
	met bool
	// near: not all keys of the block are before bound.
	near bool
}

// Fill implements kv.Filler.
//
// Cost: one copy of what is shown. Where a key differs from the one before it
// shows at the first byte that the entry spells out; only if that does not tell
// are keys compared. The bound is compared with keys in its own block alone.
func (it *Iterator) Fill(b *kv.Batch, v *kv.View, bound []byte) (passed int) {
	if !it.valid {
		return 0
	}
	if it.walk == backward {
		return it.fillBack(b, v, bound)
	}
	f := fill{it: it, b: b, v: v, bound: bound, at: it.start, shareable: len(it.key)}
	// The current entry is read again; the key before it was shared as far as it is
	// needed.
	f.keyAt, f.keyLen = len(b.Data), len(it.key)
	b.Data = append(b.Data, it.key...)[:f.keyAt]
	f.near = it.nearBound(bound)
	for f.block() && it.enter(it.blockAt+1) {
		f.at, f.shareable, f.near = 0, 0, it.nearBound(bound)
	}
	return f.passed
}

// nearBound reports whether keys of the current block may lie at the bound or
// behind it.
func (it *Iterator) nearBound(bound []byte) bool {
	return bound != nil && it.r.index.mayReach(it.blockAt, bound)
}

// block goes on to the end of the current block. It returns false if Fill ends
// before, where it should or on an error.
func (f *fill) block() bool {
	it, b := f.it, f.b
	data := it.block.data[:it.block.limit]
	for f.at < len(data) {
		p := data[f.at:]
		var shared, unshared, value, body, end int
		var trailer, expiry uint64
		apart := false
		if len(p) >= minEntryBytes && p[0]|p[1]|p[2] < 0x80 && p[3]&(flagExpiry|flagApart) == 0 {
			shared, unshared, value = int(p[0]), int(p[1]), int(p[2])
			trailer, body = binary.LittleEndian.Uint64(p[3:]), minEntryBytes
			end = body + unshared + value
			if end > len(p) || trailer>>8 == 0 || !kv.Kind(trailer).Valid() {
				return it.malformed()
			}
		} else {
			var h header
			if !it.block.header(f.at, &h) {
				return it.malformed()
			}
			shared, unshared, value = h.shared, h.unshared, h.value
			trailer, expiry, apart = kv.Trailer(h.seq, h.kind), h.expiry, h.apart
			body, end = h.keyAt-f.at, h.end-f.at
		}
		if shared > f.shareable {
			return it.malformed()
		}

		// Lay the key out, and the value behind it.
		n, keyLen := len(b.Data), shared+unshared
		arena := b.Data[:cap(b.Data)]
		if len(arena)-n < shared+unshared+value {
			arena = f.grow(n, shared+unshared+value)
		}
		if f.keyAt != n && shared > 0 {
			copy(arena[n:], arena[f.keyAt:f.keyAt+shared])
		}
		if f.met && f.sameKey(arena, n, shared, p[body:body+unshared]) {
			// An older version. Its key is the one before.
			f.at, f.shareable = f.at+end, keyLen
			f.passed++
			continue
		}
		copy(arena[n+shared:], p[body:body+unshared])
		key := arena[n : n+keyLen]
		if b.Full() || f.passed >= b.Steps || f.near && bytes.Compare(key, f.bound) >= 0 {
			return f.stop(key)
		}
		f.passed++
		f.at, f.keyAt, f.keyLen, f.shareable = f.at+end, n, keyLen, keyLen
		seq, kind := kv.SplitTrailer(trailer)
		if f.met = f.v.Sees(seq, kind); !f.met {
			continue
		}
		if kind != kv.KindPut || expiry != 0 && expiry <= f.v.Now || len(f.v.Covers) > 0 && f.v.Hides(key, seq) {
			continue
		}
		if b.KeysOnly {
			value, apart = 0, false
		} else {
			if apart {
				pointer, ok := kv.ParseValuePointer(p[body+unshared : end])
				if !ok {
					return it.malformed()
				}
				b.Owe(pointer)
			}
			copy(arena[n+keyLen:], p[body+unshared:end])
		}
		b.Data = arena[:n+keyLen+value]
		b.Items = append(b.Items, kv.BatchItem{
			At: uint32(n), Key: uint32(keyLen), Value: uint32(value), Apart: apart, Version: seq, Expiry: expiry,
		})
	}
	return true
}

// sameKey reports whether the key of an entry is that of the entry before: the
// first shared bytes of the latter and the suffix.
func (f *fill) sameKey(arena []byte, n, shared int, suffix []byte) bool {
	if shared+len(suffix) != f.keyLen {
		return false
	}
	rest := arena[f.keyAt+shared : f.keyAt+f.keyLen]
	return len(rest) == 0 || rest[0] == suffix[0] && bytes.Equal(rest, suffix)
}

// grow makes room for more bytes behind the first n of the arena, among which or
// behind which is the key before.
func (f *fill) grow(n, more int) []byte {
	keyEnd := f.keyAt + f.keyLen
	data := slices.Grow(f.b.Data[:max(n, keyEnd)], n+more-max(n, keyEnd))
	f.b.Data = data[:n]
	return data[:cap(data)]
}

// stop makes the entry at f.at, which has this key, the one that the iterator
// stands at. It returns false.
func (f *fill) stop(key []byte) bool {
	f.it.key = append(f.it.key[:0], key...)
	f.it.next = f.at
	f.it.read(&f.it.entry)
	return false
}

// fillBack is Fill on a backward walk.
func (it *Iterator) fillBack(b *kv.Batch, v *kv.View, bound []byte) (passed int) {
	for it.valid && !b.Full() && passed < b.Steps && (bound == nil || bytes.Compare(it.at.Key, bound) > 0) {
		e, left := it.at, it.interval.left
		if left == 0 || bytes.Equal(it.interval.entries[left-1].Key, e.Key) {
			n, ok := it.versionsBack(b, v)
			if passed += n; !ok {
				return passed
			}
			continue
		}
		// The only version.
		if v.Sees(e.Seq, e.Kind) && v.Shows(e) {
			b.Add(e)
		}
		passed++
		it.interval.left = left - 1
		it.at = &it.interval.entries[left-1]
	}
	return passed
}

// versionsBack steps back over all versions of a key, the oldest first. It reports
// false on an error, behind which there may be a newer one.
func (it *Iterator) versionsBack(b *kv.Batch, v *kv.View) (passed int, ok bool) {
	b.Stage(it.at.Key)
	for ok := true; ok && bytes.Equal(it.at.Key, b.StagedKey()); passed++ {
		if v.Sees(it.at.Seq, it.at.Kind) {
			b.Version(it.at)
		}
		ok = it.stepBack()
	}
	if it.err != nil {
		return passed, false
	}
	b.Commit(v)
	return passed, true
}
