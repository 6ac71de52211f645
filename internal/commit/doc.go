// Package commit coordinates the writes of a store: it forms micro-batches of what many
// callers write, appends them to the log as records, inserts the records into the tree in
// the order of the log, makes them visible, and answers the callers. (Answers may overtake
// each other: see early records.) In other texts: group commit, write pipeline, flat
// combining, optimistic concurrency control.
//
// It knows records, their order and their durability. It does not know how a log makes
// records durable ([Log]), nor how a tree keeps and finds keys ([Tree]). The engine routes
// each key to the [Coordinator] of its partition.
//
// # The way of a write
//
// There are two ways in. [Submit] takes the independent writes of a call, as one
// [WriteGroup] for each partition, or an atomic batch that lies in one partition. A write, or a
// batch of one key, may depend on what this key held. [Propose] takes a proposal: an atomic batch
// that depends on other keys, or lies in several partitions.
//
//	Submit       if no goroutine leads the partition, the caller leads; else it queues its group
//	append       the leader takes what is queued, up to a size: a micro-batch. Under appendMu it
//	             skips writes whose request id is known, refuses those whose key has changed
//	             since they read it, and lays out the rest as one record, or as two if only
//	             some ask for a sync; the log gives each commit unit (a write, or
//	             an atomic batch) the next number
//	flush        the log writes the records of all partitions as one frame, with one sync
//	insert       once the record is as durable as asked, a leader, perhaps another one, inserts
//	             it into the memtable, unless it is there already, hidden (since a later record
//	             became early: see below)
//	publish      readers of the tree see it; the engine's sequencer, which computes the visible
//	             number, is told
//	decide       every caller gets its own result
//
// Applying a record means the last three steps. The records that have been appended and are not
// yet visible are the coordinator's line.
//
// An [Orchestrator] is a goroutine, and the leadership of some coordinators, its members. One
// goroutine at a time leads them, the orchestrator's or a caller's: it takes groups from the queues
// of all members that are due, which have a bit set, and applies their records. So callers that write to
// different partitions share a yield, a write of the log and a goroutine switch, as if
// they wrote to one. No goroutine waits to become the leader. A caller that does not become it queues
// its group, sets the bit of its coordinator, and sets the leader's note, a flag that there is something to
// do. A caller that leads queues its group too if
//
//   - groups wait for room in the log, or
//   - records of more than Options.InflightBytes are appended and not applied, or
//   - a linger, a delay in which a micro-batch fills, is configured.
//
// A caller that ends leading wakes the orchestrator if the note is set or the queue of a member that
// it has looked at is not empty. An orchestrator that leads checks both again before it ends leading.
// Beside readers a caller that has queued its groups becomes a helper for some microseconds, unless one asks
// for a sync: it looks again and again whether they are decided, and leads if no goroutine does. While there are
// helpers, a caller that ends leading leaves what there is to do to them, and the last helper to give up wakes
// the orchestrator if that may not be done. So most such writes wake no goroutine.
//
// More members for an orchestrator save processor time, and fewer let more processors work at a time. The
// engine makes one orchestrator for two processors: with two, one leader is enough for all partitions
// (see bench/NOTES.md; more processors were not measured).
//
//   - A caller that asks for no sync leads until the log is written. Writes that come
//     meanwhile are queued for the next micro-batch.
//   - A caller that asks for a sync leads only while it appends. Writes that come during
//     the sync find no leader, so their callers or the orchestrator append them; the log
//     keeps their records for the next sync.
//   - A call with independent writes to several partitions leads each of their orchestrators
//     in the same way, and flushes the log once for all of them.
//   - The orchestrator leads until all queues are empty. It writes the log, and does not wait
//     for syncs: it appends the next records while others are synced.
//
// A caller with one group yields the processor once before it appends, as the orchestrator does
// each time before it looks for work. Callers that are about to write then join the micro-
// batch, and concurrent reads get the processor. Without the yield the 99th percentile of reads
// that run together with writers that never block is 50 times as long (see bench/NOTES.md). A
// caller whose group asks for no sync does not yield while there are neither other writers nor
// readers: see [Company].
//
// # Which goroutine syncs
//
// The goroutine that appended a record unlocks appendMu and then calls [Log.Flush] or
// [Log.FlushOrSync]. The caller of Submit calls FlushOrSync, by which it may sync the log
// itself. [wal.Log] lets it if
//
//   - no other goroutine writes or syncs the log, and no record of level buffered is queued,
//     and
//   - recent syncs took at most 5 ms.
//
// In all other cases the log's own goroutine syncs. The orchestrator and Propose call
// [Log.Flush], which writes and leaves the sync to the log: an orchestrator that waited for
// the sync would hold up its partition, and a caller of Propose may propose more before it
// waits, so that one sync serves all. (Flush rarely waits: at the end of a segment it may
// create and sync the next one, and if the segment before is not yet synced, it waits for
// that; and while another goroutine writes, it waits if 32 MiB are unwritten.)
//
// The goroutine that has synced also applies the records, if the sync served at most 512
// commit units and the log has no other work: [Coordinator.RunReady] takes the leader lock of
// the orchestrator for that, or sets the note if another goroutine leads. Otherwise the log
// wakes the leaders or orchestrators concerned ([Coordinator.Wake]).
//
// # Where a write can wait
//
// In this order, after the client and the connection. An error from waits 1 to 6 means that
// the write did not happen. "None" means no limit of time. When ctx ends, waits 1 to 6 end
// with its error, and 8 and 9 with that and kv.ErrUncertain. Wait 7 does not end. Wait 10 ends
// with the error of ctx for a conditional write, with the conflict for a transaction.
//
//	   wait                          bound       ended by                          error
//	 1 the service's gate            100 ms      other work ends                   kv.OverloadError queue_time, queue_full
//	 2 earlier large calls           1 s         one of them ends                  kv.OverloadError large_writes_in_flight
//	 3 room in memtables             1 s         the pace of writers allows it;    kv.OverloadError memtables_full
//	                                             if they are full, a flush ends
//	 4 room in the inbox             1 s         the leader takes groups           kv.OverloadError inbox_full
//	   then in the inbox             none        the leader takes the group
//	 5 other proposals               1 s         one is in all memtables           kv.OverloadError batches_in_flight
//	 6 space in the log              none        the log has reserved space        kv.ReadOnlyError if there is none
//	 7 its own write or sync         none        that returns, or Flush's wait     kv.ErrFailed with ErrUncertain
//	 8 durability and order          none        the record is durable, and those  kv.ErrFailed with ErrUncertain
//	                                             it must follow are visible
//	 9 an earlier attempt            none        it is durable and visible         kv.ErrFailed with ErrUncertain
//	10 a conflicting write           none        it and all before are visible     kv.ConflictError for a transaction;
//	                                                                               kv.ErrFailed
//
// Wait 1 is in package admission; once calls have waited for more than 5 ms for 100 ms on end,
// the bound is 5 ms until the queue is empty. Waits 2, 3 and 5 are in package engine, before
// it takes any lock. A caller that leads skips 4. In 6 the caller's group stays with the
// coordinator; a caller that gives up in 4 or 6 has written nothing. In 7 the caller itself is
// inside the system call, or inside Flush (see above): if a quick disk begins to hang, the one
// caller inside the sync cannot give up. Wait 8 is all the rest between append and decide.
// After a sync the log may pause, no longer than a recent sync took, so that writers that have
// just been answered get their next record into the next sync. Wait 9 comes only for a known
// request id. The place of the first attempt is not remembered, so everything that was
// appended so far must become durable; for level buffered the caller may be inside Flush, as in 7.
// Wait 10 comes only for a proposal, or a single write with a condition, that lost. A transaction
// then returns the conflict; the others try again (Execute at most 100 times, with growing
// pauses). (In a cluster an entry of the log sets the time: for keys that
// have expired by it, it is a conflicting write.) Conditions, and reads of a transaction that are
// checked in the tables, also wait as reads do: see internal/README.md. The first write of a store
// that sets an expiry waits for the file CLOCK. If more than 2^30 numbers are not synced, the log
// refuses a record at once (kv.OverloadError unsynced_numbers).
//
// appendMu, WriteGroup.mu and wal.Log.mu are held for work in memory only.
//
// # Durability, order, and early records
//
// A micro-batch becomes two records if only some of its groups ask for a sync: one record holds
// these groups, the other the rest.
//
// A proposal leaves a mark in every partition that it has read (read_mark.go): a later write
// to what it read stays hidden until the proposal is visible. (A write that depends on its own key
// alone needs no mark: the order of the log is enough.)
//
// A newer record B may be shown to readers of single keys, and answered, before an older
// record A of the same partition that still waits for a sync, for another partition or for a
// mark. Both are in the memtable, A hidden. B is then early (early.go). A record is never
// early if it
//
//   - lies in several partitions, or deletes a range,
//   - writes a key or range that a pending proposal has read, as the mark of that proposal shows,
//   - holds a write that was sent again: the first attempt may be in an older record that is
//     still hidden,
//   - comes after a range delete that is not visible, or shares a key or a range with a batch
//     or transaction before it that is not visible.
//
// One such write keeps the whole record, with the writes of all its callers, from being early.
//
//	I1. Records enter the memtable in the order of the log. None is visible before it has
//	    the durability that it asked for, so readers see only writes that a crash cannot
//	    undo, unless their writers asked for less. What reads several keys at one version waits
//	    for every record up to that version.
//	I2. A record over several partitions becomes visible in all of them by one
//	    atomic store (see Commit), after every one of them has inserted it.
//	I3. After a caller has given up, the coordinator does not touch its memory: not its
//	    result, not its slices.
//
// # A proposal
//
// A proposal bypasses the queue of groups, the inbox. Its caller locks the appendMu of all
// partitions concerned in ascending order, checks whether anything that was read has changed,
// appends one record and unlocks, before any I/O. A refused proposal writes nothing to the log.
//
//	I4. A goroutine that holds appendMu finds everything that was appended before in a
//	    memtable or in the line, so checking both finds every change. If writes since the
//	    reads may have been flushed, Changed returns partition.ErrStale. The engine then checks
//	    a transaction against the tables (partition.Refresh), and evaluates conditions again,
//	    before it tries again.
//	I5. The request id of a write is remembered before any reader can see what it wrote.
//	    So if a condition fails and the request id is unknown, the condition failed because
//	    of another write, not of an earlier attempt of this one.
//
// Other designs keep an array of last writers by hash to find conflicts. Here the hash index
// of the memtable serves, at no cost to writes that no transaction depends on.
//
// # The log, also a replicated one
//
// [Log] is what a coordinator needs of any log. kvd has the local one, [wal.Log], and, while a
// member of a cluster leads, that of a tenure (engine/tenure.go). In terms of Raft its methods
// are:
//
//	Append              numbers an entry, which the coordinator has validated, and proposes it
//	Flush, FlushOrSync  hand proposed entries to the replication loop
//	Reached             is the position up to which entries are committed, the same for every level
//	OnRoom              tells when the bound on uncommitted entries has room
//	Err                 once it is not nil, the coordinator ends
//
// [CallerLog] has three more methods, with which callers wait for the log:
//
//	AwaitRoom           blocks until Append may succeed
//	End                 is the position of the last proposed entry
//	WaitSynced          returns once entries are committed up to a position
//
// A coordinator applies what it appended, in that order, and nothing else. So a Raft
// leader makes one coordinator for each partition and term; entries that other leaders appended
// are applied without a coordinator. When the term ends, Err says so:
// callers whose records are not committed yet get ErrUncertain, Close returns, and the node
// inserts and publishes what the cluster commits afterwards in the same [Tree], without a
// coordinator. Applying a record makes no decision: a record holds the outcome of its
// validation, its numbers, expiries and request ids. Between two terms a node has a
// coordinator of each partition that is not started: it takes over the request ids that the
// previous one has applied ([Coordinator.Inherit]), and learns those of the records that the
// node inserts ([Coordinator.Remember]). So it is ready to be started when the node leads.
package commit
