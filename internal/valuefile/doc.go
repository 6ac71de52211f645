// Package valuefile writes and reads files of large values, which sstables point
// into: levelled and tiered merges then move keys and pointers, and a value is
// written once when its memtable is flushed and again only when its file has become
// mostly garbage. In other texts: blob file, value log. The idea is that of WiscKey
// (Lu, Pillai, Arpaci-Dusseau, Arpaci-Dusseau, FAST 2016), and BitCask's before it.
//
// It knows files, records and pointers. It does not know keys, which values are
// still wanted, or when a file may be deleted: each sstable counts what it needs of
// each value file (kv.ValueRef), a manifest.Version sums that up, and so garbage is
// known to the byte and never guessed.
//
//	Writer    values -> pointers and a file, synced
//	Reader    Read, Verify, Walk; safe for concurrent use
//	Set       the value files of a partition: opens them as they are asked for;
//	          Read, ReadBatch
//	Sweep     values of several files, each about in the order of its file
//
// I1. What Finish reported is durable (the directory entry aside).
// I2. A change of any byte of a value or of its checksum is noticed by whoever reads
// the value: each value lies under a checksum that covers its place, too.
// I3. Damage is a *kv.CorruptionError that names file and offset, never other bytes.
//
// # Why values are written at flush
//
// The log could serve as value file itself: then each value is written once, not
// twice. It was left out. A log segment has the values of all partitions in the order
// of their arrival: a scan would read each from another place; a segment could go
// only when all partitions had moved what they need of it, so one partition's garbage
// would keep the others' and each segment would be garbage in patches; recovery would
// have to read a log as long as the data, or need a second kind of file that says up
// to where it need not; and a log that a replica takes over (a later wish) is not ours
// to point into. Written at flush, values are in the order of keys, a memtable's
// overwritten values are never written, and one file belongs to one partition.
//
// Hard links take away most of that: a partition linked each segment that its values
// lay in, pointers had the checksums, a link counted by its share of the segment, and
// merges that collect garbage wrote value files. It worked and was left out. PUT_HEAVY,
// values of 1 KiB, 4 partitions, interleaved rounds on a quiet machine, without and with
// links: written bytes a user byte 2.0 and 1.15; processor time of an operation 12.9 and
// 12.1 us with 4 threads, 12.6 and 12.3 with 16; operations 1 to 1.09 and 1 to 0.95, for
// it is the processor that limits, not the disk. Gets took as long; scans of 50 values
// 1.4 times, behind the page cache 1.7 times as long, a scan of everything 2 and 5 times,
// until merges had rewritten the values.
//
// # Format, version 1
//
// Numbers are little-endian.
//
//	+----------+-----+----------+--------+
//	| record 0 | ... | record n | footer |
//	+----------+-----+----------+--------+
//
//	record = length u32, of the value, not zero | value
//	         | CRC32C u32 of partition u32, file number u64, offset u64, length, value
//
// Offset is where the record begins. So a record that stands in another file or at
// another place, or that a pointer cuts short, is damage.
//
// Footer, 56 bytes; the last 20 are alike in all versions, so that a file of a newer
// version is refused as such and not as damaged:
//
//	 0  partition u32 | file number u64
//	12  values u64 | bytes of all values u64 | bytes of all records u64
//	36  footer length u32 | version u32 | CRC32C u32 of the footer before it | "kvd-val\n"
//
// # Cost
//
// Eight bytes a value, and what a pointer takes in the sstable: some 10 bytes. A Read
// is one pread and one checksum. Values are not cached here: the page cache does.
//
// Values are not compressed: each would be by itself, as it is read, and s2 takes 1 us to
// find out that 1 KiB of random bytes does not shrink, saves 2 % of a JSON object of 366
// bytes, and makes the write of one of 2.2 KiB 4.8 us dearer and a read 1.6 times as dear,
// to save the disk 45 % of it, 3.5 us of its time (bench/compression; why not, and what it
// would need, is in package sstable). A dictionary in each file would store the small
// object in 0.41, for 2.8 us a write and 0.4 us a read more.
package valuefile
