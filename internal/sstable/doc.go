// Package sstable writes and reads one immutable sorted file of entries. In
// other texts: SSTable, table file, sorted run, delta, base file. What a file is
// used for, delta or base, the manifest knows and the file does not.
//
// It knows files, blocks and entries. It does not know which files make up a
// partition, in which order they are asked, or when one may be deleted.
//
//	Writer    entries in order -> file, synced
//	Reader    Get, GetBatch, NewIterator (both ways, and Fill), RangeTombstones, Verify;
//	          safe for concurrent use
//	Query     one point read, which walks from file to file until one answers
//	Cache     verified data blocks of all open files, bounded in bytes
//
// I1. What Finish reported is durable (the directory entry aside).
// I2. A change of any byte of a file is noticed by whoever uses the byte: all
// contents lie under checksums, which are verified before anything is decoded.
// I3. Damage is a *kv.CorruptionError or a read error at whoever needs the bytes:
// never an absent key, an older version, or an early end. A query that met it
// is done, so that no older file answers in its place.
// I4. What a Reader or the Cache hands out by reference is never changed.
//
// # Range tombstones
//
// A range tombstone stands among the entries at its start, like any other, so
// that flush and compaction carry it along; and once more in a block that is in
// memory while the file is open, so that point reads see one that starts
// elsewhere. It hides older versions only: an entry of the same sequence number
// (a batch may delete a range and put into it) is not hidden. kv.TableMeta's
// Largest reaches to its end, so whoever picks files by their bounds asks this
// one for the covered keys too.
//
// # Values that are apart
//
// The value of a put may lie in a value file (package valuefile): the entry then has
// a kv.ValuePointer in its place. This package counts what a table needs of each value
// file, hands pointers on as they are, and reads no values: a merge has no use for
// them, and who answers a caller reads those of many tables together.
//
// # Format, versions 1 and 2
//
// A table with a pointer has version 2, any other version 1, which knows no flag 0x40
// and no value files in the properties. Numbers are little-endian; varint is the unsigned LEB128 of encoding/binary
// in its shortest form; string is a varint length and bytes.
//
//	+--------+-----+--------+--------+-------+------------------+------------+--------+
//	| data 0 | ... | data n | filter | index | range tombstones | properties | footer |
//	+--------+-----+--------+--------+-------+------------------+------------+--------+
//	                                          only if there are
//
// All but the footer are blocks, without gaps between them:
//
//	+-- - - - - - --+----------------+-----------------------------------------+
//	| contents      | compression u8 | CRC32C u32 of partition u32, file       |
//	|               | 1 = none       | number u64, offset u64, kind u8,        |
//	|               |                | contents, compression                   |
//	+-- - - - - - --+----------------+-----------------------------------------+
//	kind: 1 data, 2 filter, 3 index, 4 range tombstones, 5 properties
//
// So a whole block that stands in another file, at another place, or where one
// of another kind is expected, is damage. The other values of compression are
// reserved; zero is never valid.
//
// Data block: entries in the order of kv.Compare, then the restart points. Every
// sixteenth entry, the first included, is one: it spells out its whole key. A
// backward walk reads the entries between two of them forward, keeps them, and
// steps back through what it kept; restart points that do not part all entries
// into such groups of at most sixteen are damage to it.
//
//	| entry | ... | entry | restart u32 ... (position of an entry) | restarts u32 |
//
//	entry = varint shared    key bytes taken from the entry before it
//	        varint unshared  key bytes that follow
//	        varint value     value bytes that follow
//	        u64 trailer      sequence number << 8 | kind | 0x80 if an expiry follows
//	                         | 0x40 if the value is a pointer
//	        varint expiry    only if announced; not zero
//	        key bytes, value bytes
//
// Filter: a Bloom filter in lines of 64 bytes; all probes of a key lie in one
// line. It comes from the 64-bit key hash alone (filterSpread in filter.go).
//
//	| line ... | kind u8 = 1 | probes u8 | 0 u16 | lines u32 |
//
// Index: per data block a separator, which orders not before the last entry of
// the block and before the first of the next. Its number is 0, behind all
// versions of its key, unless the block ends among the versions of one key.
// Offsets follow from the lengths.
//
//	string common prefix of all separators | varint blocks | per block:
//	  string rest of separator key | varint sequence number
//	  | varint length with trailer | varint entries
//
// Range tombstones, by start, then newest first:
//
//	varint count | per tombstone: string start | string end | varint sequence number
//
// Properties:
//
//	varint entries | varint deletes | varint smallest number | varint largest number
//	| string smallest key | string largest key or end | string name of the key hash
//	| version 2: varint value files | per file, by number: varint number
//	  | varint values needed of it | varint bytes of these
//
// A pointer is three varints: number of the value file, offset in it, length of the
// value.
//
// Footer, 72 bytes; the last 20 are alike in all versions, so that a file of a
// newer version is refused as such and not as damaged:
//
//	 0  partition u32 | file number u64
//	12  lengths u64 of: all data, filter, index, range tombstones, properties
//	52  footer length u32 | version u32 | CRC32C u32 of the footer before it | "kvd-sst\n"
//
// The lengths and the footer's own add up to the size of the file, or it was cut
// or has grown. What may come: a hash locator as a kind of block, with a new version.
//
// # Arithmetic
//
// An entry of a 16-byte key and a 100-byte value in 4 KiB blocks takes 127.3
// bytes: 3 for the lengths, 8 trailer, 1.25 filter, and 0.8 for restart points,
// block trailer and index, less 1.7 that prefix compression saves on random
// keys. Of an open file stay in memory the filter, 1.25 bytes per key, and per
// block some 28 bytes of index and a pointer: about 2 % of such a file.
//
// A Get costs about one processor cache miss where the filter says no, as it does
// for 99 % of absent keys at 10 bits; it is then some 30 times cheaper than a Get
// of a cached block, which is four times cheaper than one that reads its block
// from the page cache (one pread, one checksum, one allocation). No Get reads
// more than one block. A batch of 16 costs 0.8 to 0.9 of as many Gets when all is
// cached and as much when the page cache serves it; where a disk is waited for,
// up to eight reads are under way at once. A Writer touches each byte three times
// (block, write buffer, checksum) and for random keys spends about half a cached
// Get on an entry. Measured with 500,000 keys, on two cores that others used too:
// only the ratios mean anything.
//
// A scan takes entries by Fill, which decodes a block in one loop and copies what is
// shown to where the scan's caller will read it, instead of lending entry by entry.
// An iterator takes 16 ns of processor time for an entry, 36 ns if the page cache
// serves the blocks and each is verified; backward 36 and 46 ns, for it reads each
// entry into memory of its own and the processor does not foresee where it goes.
// Measured with a million keys, medians, on the same cores.
package sstable
