// Package memtable holds the newest writes of one partition in memory: active
// while it takes writes, then sealed until a flush turned it into a delta. In
// other texts: write buffer, C0 (O'Neil et al., "The Log-Structured Merge-Tree",
// 1996), pending writes.
//
// It knows entries and their order. It does not know the log, when to seal, or
// what may be seen: readers bring the sequence number they read at.
//
// # Shape
//
//	hash ─> index: 256 segments of slots          arena: chunks, in order of Add
//	        [ tag 24 bits | address 40 bits ] ──> record ──> older version of the key
//	                                              record
//	order: sorted runs of (8 bytes of key, address), made when asked for
//	marks: (sequence number, address) of one record in 32
//	range tombstones: sorted runs of them, beside their records
//
// A skiplist keeps order with every write and pays for it with a cache miss at
// each level. Point reads need no order, a flush needs it once, and a scan needs
// it only if there is one. So an Add here is a copy to the end of the arena and
// one slot, and order is made by whoever wants it: at flush by one radix sort;
// for scans in runs, the new records sorted and merged with runs of like size.
//
// The arena is in the order of Add, so in that of sequence numbers: what was
// written since a number is its end, and a mark says where that begins.
//
// Range tombstones are rare. They lie in the arena as every entry does and once
// more in a form that answers which of them covers a key: an immutable set, which
// the writer replaces with each one it adds. The set is cut into runs of falling
// size, as the order is, so that n Adds sort each a few times log n, not n. Who
// wants all of them in one run folds them, once after each change.
//
// Arena, slots, marks and order hold addresses, not Go pointers: the garbage
// collector has a few hundred objects to look at, not millions. (Range tombstones
// do hold pointers.)
//
// One writer, readers without locks: the writer fills a record, then stores its
// address atomically. Growing the index copies one segment of 256 and swaps a
// pointer; whoever still reads the old segment finds all that was published when
// it loaded it. A record is never changed or moved, so what Get and iterators
// lend stays as it is for as long as anybody holds it. A mark is set behind the
// end of its record, and a range tombstone is in the set before its Add returns.
//
// # Memory
//
// For n entries, each with a key of k and a value of v bytes:
//
//	record  16 + k + v   (+8 with an older version, +8 with an expiry;
//	                     a value over a quarter chunk: k + 24 and a block of its own)
//	index   11 to 21     one 8-byte slot, at a load of 3/8 to 3/4
//	order   16           counted from the start, allocated when asked for
//	marks   1/2 to 1     16 bytes for 32 entries, in a slice that doubles
//	range tombstone 192  twice an entry and an end: in a run, and folded
//
// With 16-byte keys and 100-byte values that is 159 to 169 bytes for 116 of user
// data; 166 measured with 2^20 entries. Merging runs beside a scan takes as much
// as the order again, for a moment, uncounted.
//
// # Time
//
// Measured with the benchmarks of this package: 2^20 random 16-byte keys, values
// of 100 bytes, on two cores of an AMD EPYC (virtual, 2.4 GHz) that other work
// shared. Nanoseconds for an entry, the least of several runs; trust the ratios
// more than the figures.
//
//	                                here   Go map   skiplist
//	Add                              200      960      4,700
//	order at flush                    70      650          0
//	  keys share their first word    100
//	walk in order                     55
//	Get, present                     400
//	Get, absent                       80
//	Get in touched batches of 16     200
//
// The Go map is map[string]version with its keys sorted at flush; the skiplist
// lies in the same arena and needs no atomics, as only one goroutine uses it.
// Both are kept in bench_test.go. Without Touch the batches take 420, with two
// keys in a batch 390 against 270. Adds in touched batches of 64 to 2,000, every key
// twice, took 0.3 times as long as without Touch, in batches of 4 0.6 times. Walking
// touches ahead too: without that it takes about twice as long. The longest of a
// million Adds took 0.3 ms in the calmest run.
//
// Order is not paced. The first iterator after n Adds sorts them all, 40 ms for
// the 400,000 of a memtable of 64 MiB; and once in a while a merge with the largest
// run costs some 20 ns for each entry of the table. An Add, an iterator and 50
// entries of it, again and again, take 10 µs a turn.
//
// Measured with more noise: WrittenSince takes 25 ns for an entry (53 if it fell
// out of the caches) and up to 0.4 µs to get there; Cover 5 ns without range
// tombstones, 0.2 µs with 100, 0.8 with 10,000 in runs, 0.5 if they are folded.
//
// # Limits
//
// Range tombstones must be rare. Each of 10,000 takes 9 µs to add on average, the
// one that merges the largest runs some milliseconds; folding sorts as many.
// Cover steps over every one that starts before the key and not behind the end of
// a wider one: a wide one makes it as slow as there are narrow ones below the key.
//
// Keys whose hashes agree in their low 32 bits share a slot's neighbourhood, and
// each costs the others a comparison. The hash has no secret: who can choose keys
// can make writes slow, not wrong.
//
// Get at an old number steps over every newer version of the key.
package memtable
