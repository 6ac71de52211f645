// Package valuefile writes and reads files of large values, which sstables point
// into. Merges then move keys and pointers: a value is written once when its memtable
// is flushed and again only when its file has become mostly garbage. In other texts:
// blob file, value log. The idea is that of WiscKey (Lu, Pillai, Arpaci-Dusseau,
// Arpaci-Dusseau, FAST 2016), and of BitCask before it.
//
// It knows files, records and pointers. It does not know keys, which values are
// still needed, or when a file may be deleted: each sstable counts what it needs of
// each value file (kv.ValueRef) and a manifest.Version adds the counts up, so that
// garbage is known to the byte.
//
//	Writer    values -> pointers and a file, synced
//	Reader    Read, Verify, Walk; safe for concurrent use. OpenDamaged: Read alone
//	Set       the value files of a partition, opened on demand: Read, ReadBatch
//	Sweep     values of several files, each about in the order of its file
//
// I1. What Finish reported is durable, except for the directory entry.
// I2. A read detects a change of any byte of its value or of the checksum, which also
// covers the place of the value.
// I3. Damage is a *kv.CorruptionError that names file and offset, never other bytes.
//
// # Why values are written at flush
//
// The log could serve as value file: then each value is written once, not twice. That
// was rejected. A log segment holds the values of all partitions in the order of their
// arrival: a scan would read each value from another place; a segment could be removed
// only when all partitions had moved what they need of it; recovery would read a log as
// long as the data, or need a second kind of file that says where to start; and a log
// that is replicated is not ours to point into. Written at flush, values are in the
// order of keys, overwritten values of a memtable are never written, and one file
// belongs to one partition. Hard links to log segments solve most of this and were
// measured: in PUT_HEAVY they write 1.15 bytes per user byte instead of 2.0, at a rate
// between 0.95 and 1.09 times, but scans take up to five times as long until merges have
// rewritten the values (bench/NOTES.md).
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
// Offset is where the record begins. So a record in another file or at another offset,
// or with another length than its pointer says, is damage.
//
// Footer, 56 bytes; the last 20 have the same layout in all versions, so that a file of
// a newer version is refused as such and not as damaged:
//
//	 0  partition u32 | file number u64
//	12  values u64 | bytes of all values u64 | bytes of all records u64
//	36  footer length u32 | version u32 | CRC32C u32 of the footer before it | "kvd-val\n"
//
// # Cost
//
// Eight bytes per value, and some 10 bytes for its pointer in the sstable. A Read is one
// pread and one checksum. This package keeps no values in memory: point reads have a cache
// above it (sstable.Values), all others the page cache alone. Values are not compressed:
// for a JSON object of 2.2 KiB s2 would save 3.5 us of disk time and add 4.8 us to the
// write (bench/NOTES.md).
//
// Records are not kept within pages of the disk: a value of 1 KiB reads 1.25 pages of 4 KiB on
// average. To keep all within one, 13 to 24 % of the file would be padding (bench/NOTES.md).
package valuefile
