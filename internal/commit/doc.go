// Package commit coordinates the writes of a store: it makes write groups of what many
// callers write, gives each record its place in the log, and applies records to trees and
// answers their callers in that order. In other texts: group commit, write pipeline,
// flat combining, optimistic concurrency control.
//
// It knows records, their order and their durability. It does not know how a log makes
// records durable ([Log]), nor how a tree keeps and finds keys ([Tree]). The engine routes
// each key to the [Coordinator] of its partition.
//
// # The way of a write
//
// There are two ways in. [Submit] takes the write groups of a call whose writes depend on
// nothing, one group for each partition. [Propose] takes a write that depends on what keys
// hold, or that lies in several partitions.
//
//	Submit       if no goroutine leads the partition, the caller leads; else the group is queued
//	append       the leader takes all that is queued as one write group; under appendMu it drops
//	             writes that were applied before, lays the rest out as one record, or as two,
//	             and the log gives each record its numbers and its place
//	flush        the log writes the records of all partitions as one frame, with one sync
//	apply        a leader inserts the record into the tree once it is as durable as asked
//	publish      the tree's readers see it; the sequencer hears of its numbers
//	decide       every caller gets its own result
//
// The leader holds the leader lock of its coordinator: one goroutine at a time, for which
// no other one waits. It is the orchestrator, a goroutine that each coordinator has, or a
// caller. A caller that finds the lock free leads for its own writes, so that no goroutine
// is woken for a write that comes alone:
//
//   - A caller that asks for no sync leads until the log is written. Writes that come
//     meanwhile form the next write group.
//   - A caller that asks for a sync leads only while it appends. Writes that come during
//     the sync gather in the log.
//   - A call over several partitions leads each of them in the same way, and flushes the
//     log once for all of them.
//
// A caller with one group yields the processor once before it appends, as the orchestrator
// does before each write group: without that, gets beside writers that never block wait 50
// times as long (99th percentile; see bench/NOTES.md).
//
// The leader does not wait for the log: it forms the next record while others are written
// and synced. Records that are in the log and not yet applied are the coordinator's line.
//
// # Who syncs
//
// One rule: the goroutine that appended a record flushes the log, outside of its locks. If
// it is a caller that waits for that record, it calls [Log.FlushOrSync] and may sync the
// log itself: [wal.Log] lets it if no other goroutine writes or syncs and syncs were quick
// lately. In all other cases the log's own goroutine syncs. The orchestrator and Propose
// call [Log.Flush], which never syncs: an orchestrator that waited for the disk would keep
// its partition's writes waiting, and a proposal has let go of partitions of which others
// may lead.
//
// The goroutine that has synced applies what that made durable if it has nothing else to do
// ([Coordinator.RunReady]); else the log wakes the leaders concerned ([Coordinator.Wake]).
//
// # Where a write can wait
//
// In this order. Of the waits 1 to 6, the write has not happened if the caller gets an
// error. Every wait ends with ctx too, but for 7; "ctx" is then the error.
//
//	   wait                      bound         ended by                          error
//	 1 the service's gate        its target    other work ends                   kv.OverloadError
//	 2 large calls, one another  1 s           a large call ends                 kv.OverloadError large_writes_in_flight
//	 3 memtables: pace           1 s           the pace; a flush, if they are full   kv.OverloadError memtables_full
//	 4 full inbox                1 s           the leader takes a write group    kv.OverloadError inbox_full
//	 5 proposals, one another    1 s           a proposal is in all memtables    kv.OverloadError batches_in_flight
//	 6 space in the log          none          the log has reserved space        kv.ReadOnlyError if there is none
//	 7 own write or sync         the disk's    the system call                   kv.ErrFailed; ErrUncertain for what was in the log
//	 8 durability and order      none          the log reached the record, and   ctx with ErrUncertain;
//	                                           records it must follow are visible  kv.ErrFailed with ErrUncertain
//	 9 an earlier attempt        none          the log reached it, it is visible   ctx with ErrUncertain
//	10 a conflicting write       none          that write is visible             ctx; kv.ConflictError for a transaction
//
// 1 is package admission. 2, 3 and 5 are package engine, which takes them before any
// lock. 4 is [Submit]; a caller that leads skips it, and 6 then holds its group in the
// coordinator until the log has room: a caller that gives up before has written nothing.
// 7 is the price of a caller that writes and syncs: of a disk that was quick and begins to
// hang, one caller at a time cannot give up. Flush waits too while 32 MiB wait to be
// written. 8 is everything between append and decide; a
// caller that gives up there does not know the outcome. 9 comes only for a request id that
// is known. 10 comes only for writes that depend on others' and lost: they try again once
// the write that they lost against can be read (a transaction's caller does).
//
// appendMu, WriteGroup.mu and the locks of the log are held for work in memory only.
//
// # Durability and order
//
// A write group with writes of both kinds becomes two records: one for writes that ask
// for a sync and one for the others. A record that has what it asked for does not wait
// for a stronger one that precedes it: it is inserted after that one, which stays hidden,
// and is then visible and acknowledged early (early.go). A record is never early that
// lies in several partitions, deletes a range or answers a write that was sent again, nor
// one that writes a key which a batch or a transaction before it has written, here or in
// several partitions. What a proposal has read it leaves as a mark in each partition in
// which it did (read_mark.go): no later write to that is visible before the proposal is,
// early or not.
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
// A proposal does not pass the inbox. Its caller holds the appendMu of all partitions
// concerned, locked in ascending order, looks whether anything that was read has changed,
// appends one record and unlocks, before any I/O. What is refused has cost the log
// nothing.
//
//	I4. A goroutine that holds appendMu finds everything that was appended before in a
//	    memtable or in the line. So validation by these two misses nothing, unless the
//	    reads are older than the memtables, which it can tell (partition.ErrStale).
//	I5. The request id of a write is remembered before any reader can see what it wrote.
//	    So a reader of the write that does not find the id knows that it is another's.
//
// Validation asks the memtables, whose hash index is what other designs keep an
// array of last writers for, without that one's false conflicts, and at no cost to
// writes that no transaction depends on.
//
// # The log
//
// [Log] is what a coordinator needs of any log, local or replicated. In terms of Raft:
// Append proposes an entry, which the leader of the group has validated and numbered under
// appendMu; Flush and FlushOrSync hand proposed entries to the replication loop; Reached is
// the position up to which entries are committed, the same for each durability; OnRoom
// tells when the bound on uncommitted entries has room; Err ends a coordinator.
//
// A coordinator applies what it appended, in that order, and nothing else. So a replicated
// log gives each term of its leader a coordinator of its own. When the term ends, Err says
// so: callers whose records were not committed by then get ErrUncertain, Close returns, and
// the node applies what the group commits from then on to the same [Tree] without a
// coordinator, as a follower does. Apply never decides: a record holds the outcome of its
// validation, its numbers, expiries and request ids. What recovery calls, [Coordinator.Remember],
// a new leader calls for what it has applied.
package commit
