// Package sstable writes and reads one immutable sorted file of entries. In
// other texts: SSTable, table file, sorted run, delta, base file. Whether a file
// is a delta or part of the base is recorded in the manifest, not in the file.
//
// It knows files, blocks and entries. It does not know which files make up a
// partition, in which order they are searched, or when one may be deleted.
//
//	Writer    entries in order -> file, synced
//	Reader    Get, NewIterator (both ways, and Fill), RangeTombstones, Verify;
//	          safe for concurrent use
//	Salvage   every entry of a damaged file whose block verifies
//	Query     one point read, passed from file to file until one answers
//	Cache     verified data blocks of all open files, and values, bounded in bytes
//	Values    the values of one partition in the Cache
//
// I1. What Finish reported is durable, except for the directory entry.
// I2. A read detects a change of any byte that it uses: all contents are covered
// by checksums, which are verified before anything is decoded.
// I3. A read that needs damaged bytes returns a *kv.CorruptionError or a read error:
// never an absent key, an older version, or an early end. Its query is then done,
// so that no older file answers it.
// I4. Bytes that a Reader or the Cache lends are never changed.
//
// # Range tombstones
//
// A range tombstone is stored twice: as an entry at its start, so that flush and
// compaction carry it along, and in a block that is in memory while the file is
// open, so that point reads find tombstones that start before their key. It hides
// older versions only: an entry with the same sequence number is not hidden, because
// a batch may delete a range and put into it. kv.TableMeta.Largest includes the end
// of every range tombstone, so a search by file bounds finds the covered keys too.
//
// # Separated values
//
// The value of a put may be in a value file (package valuefile): the entry then holds
// a kv.ValuePointer. This package counts what a table needs of each value file and
// returns pointers unchanged. It reads no values: a merge does not need them, and a
// caller that does reads the values of many tables together, and offers what it has read
// and verified to Values. Point reads take a value from there. Scans neither look for
// values there nor add any.
//
// # Compression
//
// There is none. Reading a block from the page cache and verifying it takes 3 us; s2
// would make that 1.8 to 2.4 times as long, zstd five to six times (bench/NOTES.md).
//
// # Pages
//
// The kernel reads whole pages of 4 KiB, so a block that begins anywhere in a page and is
// as long as one costs two. Therefore a Writer ends blocks with a page. What is left of the
// page becomes padding of the block if the next entry does not fit into it; the next block
// then begins with a page. Padding is at most 2 % of the data at any place of the file
// (paddingShare). Where it would be more, the next entry is a block by itself, which straddles:
// a Get of that one entry reads two pages, its neighbours read one. An entry that is longer
// than a page has a block by itself too; it is moved to the next page only if it then takes a
// page less. Filter, index, range tombstones and properties are in memory while the file is
// open, so what a Get reads of the disk is one data block. With blocks larger than a page,
// all this holds for the last page of each.
//
// # Format, versions 3 to 5
//
// Versions 1 and 2 were never released and are refused. Numbers are little-endian;
// varint is the unsigned LEB128 of encoding/binary in its shortest form; string is a
// varint length and bytes.
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
// So an intact block is damage if it is in another file, at another offset, or in
// the place of another kind. The other values of compression are reserved; zero is
// never valid.
//
// Data block: a front, then the entries in the order of kv.Compare.
//
//	| entries u32 | prefix length u16 | prefix | fingerprint u8 ... | offset ... | padding |
//	| entry | ... | entry |
//
//	prefix        the longest common prefix of all keys
//	fingerprint   per entry, bits 24 to 31 of the hash of its key
//	offset        per entry, where it begins in the contents: u16 if these have at
//	              most 65536 bytes, else u32
//	padding       zero bytes, fewer than 4096; none before version 5
//	entry       = u64 trailer    sequence number << 8 | kind | 0x80 if an expiry follows
//	                             | 0x40 if the value is a pointer
//	              varint suffix  bytes of the key after the prefix
//	              varint expiry  only if flagged; not zero
//	              suffix, and the value up to where the next entry begins
//
// A point read compares the fingerprints, eight at a time, and decodes only entries
// with that of its key; one read in sixteen decodes a wrong entry first. The front
// of a 4 KiB block fills two cache lines, the entry another two or three. The versions
// of a key are adjacent and have the same fingerprint: the read passes them newest
// first. An ordered search is a binary search of the offsets. A wrong fingerprint would
// hide a key from point reads, as a wrong filter would; Verify checks them all.
//
// Filter: a Bloom filter in lines of 64 bytes; all probes of a key are in one
// line. It depends on the 64-bit key hash alone (filterSpread in filter.go).
//
//	| line ... | kind u8 = 1 | probes u8 | 0 u16 | lines u32 |
//
// Index: per data block a separator, a key and sequence number that orders not before
// the last entry of the block and before the first of the next. Its sequence number is
// 0, after all versions of its key, unless the block ends among the versions of one key.
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
//	| varint value files | per file, by number: varint number
//	  | varint values needed of it | varint bytes of these
//
// Version 4 appends kv.TableStats: how many entries have a newer version of their key
// in the file, how many expire, and when, as differences to the previous time. A file
// that has neither is written as version 3.
//
//	| varint shadowed | varint expiring
//	| only if any expire: varint times | varint first | varint difference ...
//
// Version 5 appends to these, whatever they are, the bytes of padding in all data blocks. A
// file without padding, such as any with one data block, is written as version 3 or 4.
//
//	| varint padding
//
// A pointer is three varints: number of the value file, offset in it, length of the
// value.
//
// Footer, 72 bytes; the last 20 have the same layout in all versions, so that a file
// of a newer version is refused as such and not as damaged:
//
//	 0  partition u32 | file number u64
//	12  lengths u64 of: all data, filter, index, range tombstones, properties
//	52  footer length u32 | version u32 | CRC32C u32 of the footer before it | "kvd-sst\n"
//
// The lengths and the footer's own add up to the size of the file; otherwise the file
// was truncated or has grown.
//
// # Arithmetic
//
// An entry with a 16-byte key and a 100-byte value in 4 KiB blocks takes 128.9
// bytes: 1 for the length, 8 trailer, 3 for fingerprint and offset, 1.25 filter, and
// 0.9 for the rest of the front, block trailer, index and unused space of a block,
// less 1.3 that the prefix saves on random keys; padding takes 2 % at most. An open file keeps about 2 % of its size
// in memory: the filter, 1.25 bytes per key, and per block some 28 bytes of index, two
// to eight to begin its search, and 16 for the cache slot.
//
// A Get costs about one processor cache miss if the filter rejects the key, as it does
// for 99 % of absent keys at 10 bits. No Get reads more than one block: in a file of entries of
// up to 160 bytes nearly always one page. A batch reads up
// to eight blocks at once where reads wait for a disk. A Writer touches each byte four
// times (block, its layout, write buffer, checksum).
//
// A scan uses Fill, which decodes a block in one loop and copies the keys that it shows
// into the batch. Values of cached blocks are not copied, because cached blocks never
// change.
//
// Measurements and rejected designs are in bench/NOTES.md.
package sstable
