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
// calls [Partition.Expect]; one atomic store, [Joint.Show], then makes it visible in all.
// ShowEarly makes numbers visible to reads of single keys although earlier numbers are
// still hidden.
//
// [Partition.Changed] says whether anything that was read has been written since. It asks
// the memtables only. If the reads are older than those, [Partition.Refresh] looks in the
// tables.
//
// # A read
//
// Readers take no lock that a writer holds. A read takes three steps:
//
//  1. It acquires the read state: the memtables and the tables, immutable and
//     reference-counted.
//  2. It loads the number up to which the partition is published. The order matters:
//     compaction drops an old version only after a newer one is visible, so a state that
//     lacks the old version is only ever read at a number that sees the newer one.
//  3. It checks that the state is still the current one, and begins again if not. Otherwise:
//     the state is acquired, the memtable is replaced, a write goes into the new one, the
//     number is loaded. The read would miss that write and label an older value with its
//     number, and a conditional write that relies on the label would be wrong.
//
// A read of a single key also sees early records. It reports the version of the entry in
// place of the published number.
//
// A batch of lookups searches the active memtable, the sealed ones from new to old, the
// deltas from new to old, and the base. Keys that have been answered are skipped.
//
// # In the background
//
// Flush writes all sealed memtables together as one delta. There is one flush at a time, so
// deltas are installed in the order of their writes, and an older flush can never hide a
// newer one. Compaction merges deltas into deltas and into the base. Both run on the
// engine's workers.
//
// Values of at least Options.ValueThreshold bytes go into value files at flush, in the
// order of keys, and compaction leaves them there until too large a part of the value
// files is garbage (package compaction). A batch of lookups reads such values last, all
// together, and so does a scan for each batch of its items.
package partition
