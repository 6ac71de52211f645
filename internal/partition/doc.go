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
// operations of a record into the active memtable, where no reader sees them. Publish then
// makes every number up to one visible. [Partition.Expect] and [Joint.Show] make a record
// visible that lies in several partitions, in all of them by one store. ShowEarly makes
// numbers visible to readers of single keys that have hidden ones before them.
//
// [Partition.Changed] and [Partition.Refresh] say whether anything that was read has been
// written since: the memtables answer at once, and tables where the memtables do not reach
// back far enough.
//
// # A read
//
// Readers take no lock that a writer holds. A read acquires the read state (the
// memtables and the tables, immutable and reference-counted), then loads the
// visible sequence number, in this order: a flush or compaction drops a version
// only when a newer one was already visible, so a state that lost a version is
// never read at a number from before. Then it looks whether the state is still the
// current one, and begins anew if not: else the number could be that of a write
// which lies in a memtable that the state does not have. The answer would be right,
// but not at the version it claims, and a conditional write would build on it. A read of
// single keys also sees what is early; the version of such an answer is that of the entry
// itself. One
// batch of lookups walks the active
// memtable, the sealed ones from new to old, the deltas from new to old, and the
// base; what is answered drops out.
//
// # In the background
//
// Flush turns the sealed memtables, oldest first and all of them in one run, into
// a delta; there is one flush at a time, so deltas are installed in the order of
// their writes and an older flush can never hide a newer one. Compaction merges
// deltas into deltas and into the base. Both run on the engine's workers.
//
// Values of at least Options.ValueThreshold bytes go into value files at flush, in the
// order of keys, and compaction leaves them there until too much of what lies in value
// files is garbage (package compaction). A read follows the pointers at its end, for
// the whole micro-batch together, and so does a scan for each batch of its items.
package partition
