package memtable

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// DefaultChunkBytes is the size of an arena chunk: large enough that allocation is
// rare, small enough that zeroing a chunk (some 0.1 ms) delays no write for long.
const DefaultChunkBytes = 1 << 20

// Options of a Table. The zero value is what a store uses.
type Options struct {
	// ChunkBytes is the size by which the arena grows, rounded up to a power of
	// two of at least 64. Zero means DefaultChunkBytes. Tests use a tiny one.
	ChunkBytes int
}

const minChunkBytes = 64

// Table is one memtable.
//
// Concurrency: one goroutine calls Add and Seal; any goroutine calls the rest,
// at any time. Readers and the writer never wait for each other.
//
// I1. A record never changes or moves once its address is published.
// I2. The versions of a key form a chain from newest to oldest, and the index
// points to the newest.
// I3. A reader that learned a sequence number from the writer after Add finds
// every entry and every range tombstone up to that number.
// I4. Sequence numbers never fall from record to record.
type Table struct {
	arena  arena
	index  index
	ranges atomic.Pointer[rangeTombstones] // nil while there is none
	order  order
	marks  marks
	sealed atomic.Bool

	// Set by the writer only.
	count     atomic.Int64
	deletes   atomic.Int64
	userBytes atomic.Int64
	minSeq    atomic.Uint64
	maxSeq    atomic.Uint64
}

// New returns an empty table, which takes little more than 2 KiB.
func New(o Options) *Table {
	if o.ChunkBytes <= 0 {
		o.ChunkBytes = DefaultChunkBytes
	}
	t := &Table{}
	t.arena.init(max(o.ChunkBytes, minChunkBytes))
	t.order.init()
	return t
}

// Add inserts an entry; hash is that of its key, always by the same function.
//
// Ownership: Add copies the slices of e. It panics on a programmer's error: an invalid
// entry, a sequence number smaller than that of an earlier entry or not larger than
// that of every older version of the key, a sealed table.
//
// A range tombstone is not a version of its key: Get does not find it, Cover does.
//
// Cost: one cache miss for the slot and, if the key has a version already, one
// for its record. One Add in some thousands doubles a segment of the index. For
// a range tombstone see the package comment.
func (t *Table) Add(hash uint64, e *kv.Entry) {
	t.check(e)
	var at uint64
	if e.Kind == kv.KindRangeDelete {
		at = t.arena.append(e, 0)
		var kept kv.Entry
		t.arena.decode(t.arena.record(at), &kept)
		t.ranges.Store(t.ranges.Load().with(kept))
	} else {
		s := t.index.room(hash)
		slot, older := s.find(&t.arena, tagOf(hash), e.Key)
		if older != 0 {
			if newest := t.arena.record(older).seq(); newest >= e.Seq {
				panic(fmt.Sprintf("memtable: version %d of a key added after version %d", e.Seq, newest))
			}
		}
		at = t.arena.append(e, older)
		s.put(slot, tagOf(hash), at)
	}
	t.countIn(e)
	t.arena.publish(at)
	if t.count.Load()%markEvery == 1 {
		t.marks.list.add(mark{e.Seq, at}) // after publish: no mark points beyond what walk reaches
	}
}

// check panics on an invalid entry.
func (t *Table) check(e *kv.Entry) {
	if len(e.Key)-1 >= kv.MaxKeyBytes || len(e.Key) == 0 || len(e.Value) > kv.MaxValueBytes {
		panic(fmt.Sprintf("memtable: entry with a key of %d and a value of %d bytes", len(e.Key), len(e.Value)))
	}
	if !e.Kind.Valid() || (e.Kind == kv.KindDelete && len(e.Value) > 0) || e.Seq == 0 || e.Seq > kv.MaxSeqNum {
		panic(fmt.Sprintf("memtable: %s with sequence number %d and a value of %d bytes", e.Kind, e.Seq, len(e.Value)))
	}
	if e.Kind == kv.KindRangeDelete && (bytes.Compare(e.Key, e.Value) >= 0 || len(e.Value) > kv.MaxKeyBytes) {
		panic(fmt.Sprintf("memtable: range tombstone from a key of %d to one of %d bytes, empty or too long", len(e.Key), len(e.Value)))
	}
	if newest := t.MaxSeq(); e.Seq < newest {
		panic(fmt.Sprintf("memtable: sequence number %d added after %d", e.Seq, newest))
	}
	if t.sealed.Load() {
		panic("memtable: Add after Seal")
	}
}

func (t *Table) countIn(e *kv.Entry) {
	n := t.count.Load()
	if n == 0 {
		t.minSeq.Store(uint64(e.Seq))
	}
	if seq := uint64(e.Seq); seq > t.maxSeq.Load() {
		t.maxSeq.Store(seq)
	}
	t.userBytes.Store(t.userBytes.Load() + int64(e.Size()))
	if e.Kind != kv.KindPut {
		t.deletes.Store(t.deletes.Load() + 1)
	}
	t.count.Store(n + 1)
}

// Get finds the newest version of key with a sequence number of at most at and
// reports whether there is one. A tombstone counts as a version: check e.Kind.
//
// Ownership: the slices of e are borrowed from the table; nothing ever
// overwrites them. Cost: two cache misses, and one for each version of the key
// that is newer than at.
func (t *Table) Get(hash uint64, key []byte, at kv.SeqNum, e *kv.Entry) bool {
	address := t.index.lookup(&t.arena, hash, key)
	for address != 0 {
		r := t.arena.record(address)
		if r.seq() <= at {
			t.arena.decode(r, e)
			return true
		}
		address = r.older()
	}
	return false
}

// Cover returns the sequence number of the newest range tombstone not newer than at
// that covers key, or 0. It hides what Get found if that has a smaller number.
//
// Cost: one atomic load if the table has no range tombstone. Otherwise that of
// kv.RangeTombstones.Cover, in a few runs.
func (t *Table) Cover(key []byte, at kv.SeqNum) kv.SeqNum {
	ranges := t.ranges.Load()
	if ranges == nil {
		return 0
	}
	return ranges.cover(key, at)
}

// RangeTombstones returns every range tombstone whose Add returned before the
// call, nil if there is none.
//
// Ownership: the result is shared and immutable; it borrows slices of the table that
// nothing ever overwrites. Cost: the first call after the Add of a range tombstone sorts
// all of them, later calls are two atomic loads.
func (t *Table) RangeTombstones() *kv.RangeTombstones { return t.ranges.Load().fold() }

// WrittenSince calls fn for every entry with a larger sequence number than seq
// whose Add returned before the call, oldest first, until fn returns false.
// Range tombstones are included. Entries added during the call may be included.
//
// Ownership: fn borrows the entry until it returns; the slices are those of Get.
// Cost: proportional to the entries after seq, independent of those before.
func (t *Table) WrittenSince(seq kv.SeqNum, fn func(*kv.Entry) bool) {
	if t.MaxSeq() <= seq {
		return
	}
	var e kv.Entry
	t.arena.walk(t.marks.before(seq), func(_ uint64, r record) bool {
		if r.seq() <= seq {
			return true
		}
		t.arena.decode(r, &e)
		return fn(&e)
	})
}

// Touch loads into the cache what Get will need for these reads. It does not change
// any answer: a batch that is touched before it is read waits for memory a few times
// per batch, not a few times per key. It pays from two reads on.
func (t *Table) Touch(reads []*kv.Lookup) {
	var hashes [touchAhead]uint64
	for len(reads) > 0 {
		n := min(len(reads), touchAhead)
		for i, r := range reads[:n] {
			hashes[i] = r.Hash
		}
		t.TouchHashes(hashes[:n])
		reads = reads[n:]
	}
}

// TouchHashes is Touch for keys with these hashes, which are about to be read or
// added.
func (t *Table) TouchHashes(hashes []uint64) {
	var guesses [touchAhead]uint64
	var sum byte // keeps the compiler from dropping the loads
	for len(hashes) > 0 {
		n := min(len(hashes), touchAhead)
		for i, hash := range hashes[:n] {
			guesses[i] = t.index.guess(hash)
		}
		for _, at := range guesses[:n] {
			if at != 0 {
				sum += t.arena.record(at)[0]
			}
		}
		hashes = hashes[n:]
	}
	runtime.KeepAlive(sum)
}

// touchAhead is how many loads to start before using the first of them: about as
// many as a core can have outstanding.
const touchAhead = 16

// NewIterator returns an iterator over all versions of all keys, range
// tombstones included, in the order of kv.Compare.
//
// It sees every entry whose Add returned before the call and none whose Add
// began after it. The slices of its entries are those of Get: nothing ever overwrites
// them. Of entries with the same key and number, which only range tombstones can be,
// the last added comes first.
//
// Cost: it sorts what was added since the last call; see the package comment.
// Calls wait for each other, never for the writer.
func (t *Table) NewIterator() kv.Iterator {
	return newIterator(&t.arena, t.order.runs(&t.arena, t.Len(), t.sealed.Load()))
}

// Seal ends the active life of t: a later Add panics, and the next NewIterator merges
// all runs into one.
func (t *Table) Seal() { t.sealed.Store(true) }

// Bytes returns the memory that t needs: arena, index, marks, range tombstones,
// and the order, which the flush needs at the latest. Only Add increases it, so that a
// budget can account for it.
func (t *Table) Bytes() int64 {
	return t.arena.held.Load() + t.index.held.Load() + refBytes*t.count.Load() +
		markBytes*int64(cap(t.marks.list.all())) + rangeTombstoneBytes*int64(t.ranges.Load().len())
}

// UserBytes returns the bytes of keys and values added.
func (t *Table) UserBytes() int64 { return t.userBytes.Load() }

// Len returns the number of entries.
func (t *Table) Len() int { return int(t.count.Load()) }

// Tombstones returns how many of the entries are tombstones, of keys or of ranges.
func (t *Table) Tombstones() int { return int(t.deletes.Load()) }

// MinSeq returns the smallest sequence number added, 0 if there is none.
func (t *Table) MinSeq() kv.SeqNum { return kv.SeqNum(t.minSeq.Load()) }

// MaxSeq returns the largest sequence number added, 0 if there is none.
func (t *Table) MaxSeq() kv.SeqNum { return kv.SeqNum(t.maxSeq.Load()) }
