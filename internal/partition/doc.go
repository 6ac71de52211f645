// Package partition is one log-structured merge tree in one directory. In other texts: a
// shard, a tablet, a column family.
//
// It knows its memtables, tables and manifest, and what of them a reader may see. It does
// not know which keys are its own, how many partitions there are, or how writes reach the
// log: a coordinator above it (package commit) applies records, in the order of the log.
//
// # A write
//
// One goroutine at a time calls Insert, Publish, ShowEarly and SealIfDue. Insert puts the
// operations of a record into the active memtable, hidden from readers. Publish(n) makes
// every number up to n visible. For a record in several partitions the coordinator of each
// calls [Partition.Expect] after Insert, which notes that the record is inserted and not yet
// shown. The coordinator in which the record is ready last calls [Joint.Show], one atomic store
// that makes it visible in all partitions. ShowEarly makes numbers visible to
// reads of single keys although smaller numbers are still hidden (early records).
//
// [Partition.Changed] says whether anything that was read has been written since. It asks
// the memtables only. If writes since the reads may have been flushed, it returns ErrStale, and
// [Partition.Refresh] looks in the tables.
//
// # A read
//
// Readers take no lock that a writer holds. A read takes three steps:
//
//  1. It acquires the read state: an immutable, reference-counted set of memtables and tables.
//     (The active memtable in it still grows.)
//  2. It loads the number up to which the partition is published, and reads at it. The order
//     matters: compaction drops an old version of a key only after a newer one is visible. If
//     the state lacks the old version, the number, loaded after the state, includes the newer.
//  3. It checks that the state is still the current one, and begins again if not. Without this
//     check the memtable could be replaced between steps 1 and 2, and a write could be
//     published in the new one. The read would then return an older value with a number that
//     already includes the write, and a conditional write that relies on this number would be
//     wrong.
//
// A read of a single key also sees early records. If an early record, a put or a delete,
// answers the read, the read reports the version of that record as the number that it read at.
// Otherwise it reports the published number.
//
// A batch of lookups searches the active memtable, the sealed ones from new to old, the
// deltas from new to old, and the base. Keys that have been answered are skipped.
//
// # In the background
//
// Flush writes all sealed memtables together as one delta. There is one flush at a time, so
// deltas are installed in the order of their writes, and an older flush can never hide a
// newer one. Compaction merges deltas into deltas and into the base. Both run on the
// engine's workers, goroutines of its scheduler.
//
// Values of at least Options.ValueThreshold bytes go into value files at flush, in the
// order of keys, and compaction leaves them there until too large a part of the value
// files is garbage (package compaction). A batch of lookups reads such values last, all
// together, and so does a scan for each batch of its items.
package partition
