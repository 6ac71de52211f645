package memtable

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// DefaultChunkBytes is the size of an arena chunk: large enough that a chunk is
// rare, small enough that zeroing one (some 0.1 ms) delays no write for long.
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
// at any time, without waiting for the writer or making it wait.
//
// I1. A record never changes or moves once its address is published.
// I2. The versions of a key form a chain from newest to oldest, and the index
// knows the newest.
// I3. A reader that learned a sequence number from the writer after Add finds
// every entry up to that number.
type Table struct {
	arena  arena
	index  index
	order  order
	sealed atomic.Bool

	// Written by the writer alone.
	count     atomic.Int64
	userBytes atomic.Int64
	minSeq    atomic.Uint64
	maxSeq    atomic.Uint64
}

// New returns an empty table, which holds little more than 2 KiB.
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
// Ownership: Add copies the slices of e. It panics on what a caller must never
// do: an entry that is no entry, a sequence number that is not larger than that
// of every older version of the key, a sealed table.
//
// A range tombstone is kept for iterators alone: it is no version of its key.
//
// Cost: one cache miss for the slot and, if the key has a version already, one
// for its record. One Add in some thousands doubles a segment of the index.
func (t *Table) Add(hash uint64, e *kv.Entry) {
	t.check(e)
	var at uint64
	if e.Kind == kv.KindRangeDelete {
		at = t.arena.append(e, 0)
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
}

// check panics on an entry that was never legal.
func (t *Table) check(e *kv.Entry) {
	if len(e.Key)-1 >= kv.MaxKeyBytes || len(e.Key) == 0 || len(e.Value) > kv.MaxValueBytes {
		panic(fmt.Sprintf("memtable: entry with a key of %d and a value of %d bytes", len(e.Key), len(e.Value)))
	}
	if !e.Kind.Valid() || (e.Kind == kv.KindDelete && len(e.Value) > 0) || e.Seq == 0 || e.Seq > kv.MaxSeqNum {
		panic(fmt.Sprintf("memtable: %s with sequence number %d and a value of %d bytes", e.Kind, e.Seq, len(e.Value)))
	}
	if t.sealed.Load() {
		panic("memtable: Add after Seal")
	}
}

func (t *Table) countIn(e *kv.Entry) {
	n := t.count.Load()
	seq := uint64(e.Seq)
	if n == 0 || seq < t.minSeq.Load() {
		t.minSeq.Store(seq)
	}
	if seq > t.maxSeq.Load() {
		t.maxSeq.Store(seq)
	}
	t.userBytes.Store(t.userBytes.Load() + int64(e.Size()))
	t.count.Store(n + 1)
}

// Get finds the newest version of key with a sequence number of at most at and
// reports whether there is one. A tombstone is one: look at e.Kind.
//
// Ownership: the slices of e are borrowed from the table; nothing ever
// overwrites them. Cost: two cache misses, and one for each version of the key
// that is newer than at.
func (t *Table) Get(hash uint64, key []byte, at kv.SeqNum, e *kv.Entry) bool {
	address := t.index.lookup(&t.arena, hash, key)
	for address != 0 {
		r := t.arena.record(address)
		if r.seq() <= at {
			t.arena.entry(address, e)
			return true
		}
		address = r.older()
	}
	return false
}

// Touch brings into the cache what Get will want for these reads. It changes no
// answer: a batch that is touched before it is read waits for memory a few times
// in all, not a few times for each key. It pays from two reads on.
func (t *Table) Touch(reads []*kv.Lookup) {
	var guesses [touchAhead]uint64
	var sum byte // keeps the compiler from dropping the loads
	for len(reads) > 0 {
		n := min(len(reads), touchAhead)
		for i, r := range reads[:n] {
			guesses[i] = t.index.guess(r.Hash)
		}
		for _, at := range guesses[:n] {
			if at != 0 {
				sum += t.arena.record(at)[0]
			}
		}
		reads = reads[n:]
	}
	runtime.KeepAlive(sum)
}

// touchAhead is how many loads to start before using the first of them: about as
// many as a core has under way at once.
const touchAhead = 16

// NewIterator returns an iterator over all versions of all keys, range
// tombstones among them, in the order of kv.Compare.
//
// It sees every entry whose Add returned before the call and none whose Add
// began after it, whatever the writer does meanwhile. The slices of its entries
// are those of Get: nothing ever overwrites them. Entries of the same key and
// number, which only range tombstones can be, come latest first.
//
// Cost: it sorts what was added since the last call; see the package comment.
// Calls wait for each other, never for the writer.
func (t *Table) NewIterator() kv.Iterator {
	return newIterator(&t.arena, t.order.runs(&t.arena, t.Len(), t.sealed.Load()))
}

// Seal ends the life of t as the active memtable: Add panics from here on, and
// the next NewIterator makes one sorted run of everything.
func (t *Table) Seal() { t.sealed.Store(true) }

// Bytes returns the memory that t needs: arena, index, and the order that an
// iterator will ask for at the latest when t is flushed. It grows in Add alone,
// so that a budget can follow it.
func (t *Table) Bytes() int64 {
	return t.arena.held.Load() + t.index.held.Load() + refBytes*t.count.Load()
}

// UserBytes returns the bytes of keys and values added.
func (t *Table) UserBytes() int64 { return t.userBytes.Load() }

// Len returns the number of entries.
func (t *Table) Len() int { return int(t.count.Load()) }

// MinSeq returns the smallest sequence number added, 0 if there is none.
func (t *Table) MinSeq() kv.SeqNum { return kv.SeqNum(t.minSeq.Load()) }

// MaxSeq returns the largest sequence number added, 0 if there is none.
func (t *Table) MaxSeq() kv.SeqNum { return kv.SeqNum(t.maxSeq.Load()) }
