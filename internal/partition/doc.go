// Package partition is one log-structured merge tree in one directory, and the
// orchestrator that owns it. In other texts: a shard, a tablet, a column family.
//
// It knows its memtables, tables and manifest, and how a write becomes visible.
// It does not know which keys are its own, how many partitions there are, or
// where sequence numbers come from: the engine above routes to it and lends it
// the commit log.
//
// # A write
//
// The orchestrator, one goroutine, takes all that has queued in its inbox as a
// micro-batch, lays it out as one record, and appends that to the commit log
// under the partition's turn. It does not wait: while the record is being
// written and synced it forms the next one. When a record is as durable as its
// most demanding writer asked, the orchestrator inserts it into the memtable,
// publishes its sequence number and answers the callers.
//
// A micro-batch with writes of both kinds becomes two records: one for writes that ask
// for a sync and one for the others. A record that has what it asked for does not wait
// for a stronger one that precedes it: it is inserted after that one, which stays hidden,
// and is then visible and acknowledged early (early.go). A record is never early that
// lies in several partitions, deletes a range or answers a write that was sent again, nor
// one that writes a key which a batch or a transaction before it has written, here or in
// several partitions. What a proposal has read it leaves as a mark in each partition in
// which it did (read_mark.go): no later write to that is visible before the proposal is,
// early or not.
//
// A caller that finds the partition without a leader leads it itself for its own writes
// ([Partition.TryAppend]), so that no goroutine is woken for a write that comes alone. A
// caller that asks for no sync leads until the log is written, and writes that come
// meanwhile are the next micro-batch. A caller that asks for a sync leads only while it
// appends. A call over several partitions leads each of them in the same way, so its
// records are in the log together.
//
// The writing and syncing is the log's, which has the caller do that too where it can
// ([wal.Log.FlushOrSync]). The goroutine that has synced the log applies what that has made
// durable if it has nothing else to do ([Partition.Work]).
//
// A caller with one group yields the processor once before it appends, as the orchestrator
// does before each micro-batch: without that, gets beside writers that never block wait 50 times as
// long (99th percentile; see bench/NOTES.md).
//
//	I1. Records enter the memtable in the order of the log. Each is visible once it has
//	    the durability that it asked for, so no reader sees a write that a crash could
//	    still take back, unless its writer asked for no more. What reads several keys at
//	    one version waits for every record up to that version.
//	I2. A record over several partitions becomes visible in all of them by one
//	    atomic store (see Commit), after every one of them has inserted it.
//	I3. A caller that gave up is never touched again: not its result, not its
//	    slices.
//
// # A proposal
//
// A write that depends on what keys hold (a condition, a transaction), or that lies
// in several partitions, goes past the inbox, on its caller's goroutine: [Propose]
// takes the turns of all partitions concerned, in ascending order, looks whether
// anything that was read has changed, appends one record and lets go, before any
// I/O. What is refused has cost the log nothing.
//
//	I4. Whoever holds the turn finds everything that was appended before in a
//	    memtable or in line for one. So validation by these two misses nothing,
//	    unless the reads are older than the memtables, which it can tell (ErrStale).
//	I5. The name of a write is in the window before anybody can read what it wrote.
//	    So who reads it and does not know the name may conclude that another wrote it.
//
// Validation asks the memtables, whose hash index is what other designs keep an
// array of last writers for, without that one's false conflicts, and at no cost to
// writes that nobody depends on.
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
