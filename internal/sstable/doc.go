// Package sstable writes and reads one immutable sorted file of entries. In
// other texts: SSTable, table file, sorted run, delta, base file. What a file is
// used for, delta or base, the manifest knows and the file does not.
//
// It knows files, blocks and entries. It does not know which files make up a
// partition, in which order they are asked, or when one may be deleted.
//
//	Writer    entries in order -> file, synced
//	Reader    Get, NewIterator (both ways, and Fill), RangeTombstones, Verify;
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
// # Compression
//
// There is none. Of real blocks of 4 KiB, each by itself, s2 and zstd (its fastest level)
// make what follows; times are a processor's for one block, disk is what the bytes that
// are saved take at 290 MB/s (bench/compression; medians of three runs on two busy cores):
//
//	                         s2                           zstd
//	entries         stored  encode  decode    disk   stored  encode  decode    disk
//	random 100 B     1.00   3.7 us       -       -    1.00   6.3 us       -       -
//	JSON 160 B       0.48   7.3 us  4.8 us  7.1 us    0.37    37 us   15 us  8.6 us
//	counters         0.78   8.9 us  4.0 us  3.0 us    0.60    47 us   18 us  5.6 us
//	pointers         0.79    12 us  5.6 us  2.9 us    0.67    49 us   17 us  4.6 us
//
// A block that is stored as it is takes 3 us to read from the page cache and to verify.
// s2 makes that 1.8 to 2.4 times as much, zstd five to six times: no bytes that need not
// be copied outweigh it. (The block cache, which serves a Get in 0.7 to 1 us, would have
// decoded blocks.) Writers gain nothing either: the disk is spared at best as much time as
// encoding takes, and where values do not compress it costs 0.9 ns a byte to learn that,
// each time that the byte is merged. Reckoned from that, a load of 100-byte values, 2.8 us
// of processor time each, would take an eighth more, of JSON a quarter. Blocks of 16 KiB
// store JSON in 0.42 and 0.30, but a Get from the page cache takes more than twice as long
// with them before anything is decoded.
//
// It would pay for stores that are larger than the memory and hold text, beside half the
// room on the disk. A read from there takes some 90 us, so s2 is paid for once it spares
// the disk 3 to 5 reads of a hundred. With reads all over the keys that is so if the page
// cache has room for at least 4 % of such JSON, 12 % of the counters or 17 % of the
// pointers, and not for everything.
// It would need a new version, though the byte is there (an older kvd takes another value
// for damage); a bound of the decoded length before anything is allocated; a fuzzed decoder
// behind every read from a file, a merge's included; a codec among the engine's
// dependencies; and somebody to say which stores want it, for a writer cannot tell.
//
// # Format, versions 3 and 4
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
// So a whole block that stands in another file, at another place, or where one
// of another kind is expected, is damage. The other values of compression are
// reserved; zero is never valid.
//
// Data block: a front, then the entries in the order of kv.Compare.
//
//	| entries u32 | prefix length u16 | prefix | fingerprint u8 ... | offset ... |
//	| entry | ... | entry |
//
//	prefix        what the keys of all entries begin with, as much as there is
//	fingerprint   per entry, bits 24 to 31 of the hash of its key
//	offset        per entry, where it begins in the contents: u16 if these have at
//	              most 65536 bytes, else u32
//	entry       = u64 trailer    sequence number << 8 | kind | 0x80 if an expiry follows
//	                             | 0x40 if the value is a pointer
//	              varint suffix  key bytes behind the prefix
//	              varint expiry  only if announced; not zero
//	              suffix, and the value up to where the next entry begins
//
// A point read asks the fingerprints, eight at a time, and goes straight to the entry
// that has that of its key; one read of sixteen is led to another one first. The front
// of a 4 KiB block is two lines of the processor's cache, the entry another two or
// three. The versions of a key lie together and have one fingerprint: they are passed
// from the newest on. An ordered search halves the offsets. A wrong fingerprint would
// hide a key from point reads, as a wrong filter would; Verify compares them all.
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
//	| varint value files | per file, by number: varint number
//	  | varint values needed of it | varint bytes of these
//
// Version 4 goes on with kv.TableStats: how many entries have a newer version of their key
// in the file, how many expire, and when, as differences to the time before. A file that
// has neither is of version 3.
//
//	| varint shadowed | varint expiring
//	| only if any expire: varint times | varint first | varint difference ...
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
// or has grown.
//
// # Arithmetic
//
// An entry of a 16-byte key and a 100-byte value in 4 KiB blocks takes 128.9
// bytes: 1 for the length, 8 trailer, 3 for fingerprint and offset, 1.25 filter, and
// 0.9 for the rest of the front, block trailer, index and what a block has to spare,
// less 1.3 that the prefix saves on random keys. Keys that each spell out only what
// differs from the one before, with a restart point every sixteenth, took 127.2; with
// keys like user:000000123456:profile it is 125.5 against 124.4. Of an open file stay
// in memory the filter, 1.25 bytes per key, and per block some 28 bytes of index, two to
// eight that say where to begin a search of it, and 16 that lead to the block if it is
// cached: about 2 % of such a file.
//
// A Get costs about one processor cache miss where the filter says no, as it does
// for 99 % of absent keys at 10 bits; it is then some 15 times cheaper than a Get
// of a cached block, which is six times cheaper than one that reads its block
// from the page cache (one pread, one checksum, one allocation). No Get reads
// more than one block. A batch of 16 costs 0.8 to 0.9 of as many Gets when all is
// cached and as much when the page cache serves it; where a disk is waited for,
// up to eight reads are under way at once. A Writer touches each byte four times
// (block, its layout, write buffer, checksum). Measured with a million keys, on two
// cores that others used too: only the ratios mean anything.
//
// What a cached Get waits for is memory: a line each of filter, index and slot, then
// those of the block. With restart points it waited for some eight lines of the block,
// and for a struct on the way to it, which also took the counts and the bit that CLOCK
// asks for. A Get of an engine with two million keys takes 1.4 us, with that struct 1.7.
//
// Tried and left out, for no difference showed: for single Gets, reading the second line
// of the front, or the end of the entry, before they are needed (in a batch that is what
// helps); for batches, reading the lines of the filter side by side; a search of the
// index without branches.
//
// Measured and left out: one probe per file, a static map from the hash of a key to a
// fingerprint and the block, in place of filter and index. Gets from four files of 500,000
// random keys each, blocks cached, one reader, as a share of what they take in the first
// line: medians of eleven rounds, in two sittings on two busy cores:
//
//	                                      present      absent  bytes per key  ns per key to build
//	Bloom filter, index halved                  1           1            2.1                    -
//	Bloom filter, index from starts  0.79 to 0.84           1            2.3                    -
//	two lines of 16 slots, cuckoo    0.76 to 1.04  1.7 to 2.5            4.2            65 to 490
//	binary fuse, slots of 24 bits    0.82 to 0.92  1.8 to 2.2            3.4         230 to 1,600
//
// What the maps saved was the halving of the index. The numbers that say where to begin
// (index.starts) save as much, and leave the filter, whose one line is best for absent
// keys, and the format as they are.
//
// A scan takes entries by Fill, which decodes a block in one loop and lays out the keys
// of what is shown where the scan's caller will read them. Values stay in the block if
// it is cached, for cached blocks never change: a copy took 45 ns of processor time for
// an entry of 116 bytes, half of it in waiting for the lines that it wrote. What most
// entries are, a put of one version without a flag, has a loop of its own (puts), which
// keeps all it knows in registers: 39 ns before, 25 with it. Behind the cache an entry
// takes some 40 ns, for each block is read, verified and copied. Measured with a million
// keys, on two cores that others used too.
//
// # What the cache keeps
//
// The share of point reads that found their block in the cache: a million keys in
// 32,000 blocks, two million reads of which the second half counts, likely keys in
// different blocks; before is a clock whose hand stays on a block that takes the place of
// a dropped one; at shifts, every 200,000 reads, all keys change places (bench/hitratio;
// otter is W-TinyLFU).
//
//	reads              cache   before  cache  otter    LRU  CLOCK  SIEVE  S3-FIFO
//	Zipf 0.7             10 %   0.190  0.207  0.218  0.159  0.163  0.207  0.210
//	Zipf 0.99             1 %   0.407  0.407  0.406  0.302  0.312  0.405  0.408
//	Zipf 0.99            10 %   0.574  0.592  0.600  0.526  0.535  0.596  0.595
//	Zipf 0.99            25 %   0.685  0.705  0.719  0.664  0.672  0.710  0.707
//	Zipf 1.2              1 %   0.750  0.747  0.748  0.681  0.690  0.755  0.748
//	Zipf 1.2             10 %   0.860  0.871  0.868  0.842  0.847  0.873  0.873
//	Zipf 0.99, neighbours 1 %   0.651  0.646  0.631  0.565  0.575  0.656  0.647
//	Zipf 0.99, get of all 10 %   0.570  0.592  0.599  0.524  0.533  0.598  0.595
//	Zipf 0.99, shifts     1 %   0.288  0.405  0.392  0.303  0.313  0.385  0.406
//	  likewise           10 %   0.441  0.577  0.563  0.526  0.535  0.500  0.577
//	  likewise           25 %   0.546  0.682  0.661  0.661  0.667  0.600  0.680
//
// With uniform reads all are alike. SIEVE is as good while the load is steady, but late
// where it changes; so was the clock, which was better only in the smallest cache, and
// where nearly everything fits: with room for ten blocks of eleven, two reads of a thousand
// miss, and one did. One bit per block in place of two cost a point.
package sstable
