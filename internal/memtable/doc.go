// Package memtable holds the newest writes of one partition in memory: active
// while it accepts writes, then sealed until a flush has written it to a delta. In
// other texts: write buffer, C0 (O'Neil et al., "The Log-Structured Merge-Tree",
// 1996), pending writes.
//
// It knows entries and their order. It does not know the log, when to seal, or
// what a reader may see: readers pass the sequence number that they read at.
// Table lists the invariants.
//
// # Structure
//
//	hash ─> index: 256 segments of slots          arena: chunks, in order of Add
//	        [ tag 24 bits | address 40 bits ] ──> record ──> older version of the key
//	                                              record
//	order: sorted runs of (8 bytes of key after the common prefix, address), made on demand
//	marks: (sequence number, address) of one record in 32
//	range tombstones: sorted runs of them, beside their records
//
// A skiplist sorts on every write, at the cost of a cache miss per level. But point
// reads need no order, a flush needs it once, and a scan only if there is one. So
// an Add here appends to the arena and sets one slot, and readers sort: a flush by one
// radix sort; a scan in runs, sorting the new records and merging runs of similar size.
//
// The arena is in the order of Add, and so of sequence numbers: what was written
// since a number is the end of the arena, and a mark says where that begins.
//
// Range tombstones are rare. Each is in the arena like any entry, and once more in
// an immutable set that answers which of them covers a key; each Add of a range
// tombstone replaces the set. The set consists of runs of falling size, as the order
// does, so that n Adds sort each one O(log n) times. A reader that wants all of them
// in one run folds the set, at most once after each change.
//
// Arena, slots, marks and order hold addresses, not Go pointers: the garbage
// collector scans a few hundred objects, not millions. (Range tombstones do hold
// pointers.)
//
// One goroutine writes and readers take no locks: the writer fills a record, then
// stores its address atomically. Growing the index copies one segment of 256 and
// swaps a pointer; a reader of the old segment finds everything that was published
// before it loaded the pointer. A record never changes or moves, so the slices that
// Get and iterators lend stay valid for as long as the caller holds them. Add sets a
// mark after it publishes the record, and stores a range tombstone before it returns.
//
// # Memory
//
// Bytes per entry with a key of k and a value of v bytes:
//
//	record  16 + k + v   (+8 with an older version, +8 with an expiry;
//	                     a value over a quarter chunk: k + 24 and a block of its own)
//	index   11 to 21     one 8-byte slot, at a load of 3/8 to 3/4
//	order   16           counted from the start, allocated on demand
//	marks   1/2 to 1     16 bytes for 32 entries, in a slice that doubles
//	range tombstone 192  twice an entry and an end: in a run, and folded
//
// With 16-byte keys and 100-byte values that is 159 to 169 bytes for 116 of user
// data. Merging runs beside a scan temporarily takes as much as the order again,
// uncounted.
//
// # Time
//
// An Add takes 0.2 µs, a twentieth of what a skiplist takes (bench/NOTES.md). Sorting
// is not paced: the first iterator after the 400,000 Adds of a memtable of 64 MiB takes
// 40 ms, and an occasional merge with the largest run 20 ns for each entry of the table.
//
// # Limits
//
// Range tombstones must be rare. Adding the one that merges the largest of 10,000
// takes some milliseconds; folding sorts as many. Cover visits every tombstone that
// starts before the key and not after the end of a wider one: a wide one makes it as
// slow as there are narrow ones below the key.
//
// Keys whose hashes agree in their low 32 bits probe the same slots, and each costs the
// others a comparison. The hash has no secret: a user that can choose keys can make
// writes slow, not wrong.
//
// Get at an old sequence number visits every newer version of the key.
package memtable
