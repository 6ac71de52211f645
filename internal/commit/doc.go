// Package commit coordinates the writes of a store: it forms micro-batches of what many
// callers write, gives each record its place in the log, applies records to the tree in
// the order of the log, and answers the callers. In other texts: group commit, write
// pipeline, flat combining, optimistic concurrency control.
//
// It knows records, their order and their durability. It does not know how a log makes
// records durable ([Log]), nor how a tree keeps and finds keys ([Tree]). The engine routes
// each key to the [Coordinator] of its partition.
//
// # The way of a write
//
// There are two ways in. [Submit] takes the independent writes of a call, as one
// [WriteGroup] for each partition, or an atomic batch that lies in one partition. [Propose]
// takes a write that depends on what keys hold, or an atomic batch over several partitions.
//
//	Submit       if no goroutine leads the partition, the caller leads; else it queues its group
//	append       the leader takes what is queued, up to a size: a micro-batch. Under appendMu it
//	             skips writes whose request id is known and lays out the rest as one record, or
//	             as two if only some ask for a sync; the log numbers each record
//	flush        the log writes the records of all partitions as one frame, with one sync
//	apply        a leader, perhaps another one, inserts the record into the tree once it is as
//	             durable as asked
//	publish      readers of the tree see it; the engine's sequencer is told, which computes the
//	             visible number
//	decide       every caller gets its own result
//
// At most one goroutine leads a coordinator, and no goroutine waits to become its leader: a
// caller that cannot lead queues its group and leaves a note for the leader. If there
// is a note when the leader lets go, the orchestrator goes on itself, and a caller wakes it.
// The orchestrator is the coordinator's own goroutine, which leads when no caller does:
//
//   - A caller that asks for no sync leads until the log is written. Writes that come
//     meanwhile form the next micro-batch.
//   - A caller that asks for a sync leads only while it appends. Writes that come during
//     the sync gather in the log.
//   - A call with independent writes to several partitions leads each of them in the same
//     way, and flushes the log once for all of them.
//   - The orchestrator leads until the queue is empty. It writes the log, and does not wait
//     for syncs: it appends the next record while others are synced.
//
// A caller with one group yields the processor once before it appends, as the orchestrator
// does before each round. Callers that are about to write then join the micro-batch, and
// concurrent reads get the processor: without that the 99th percentile of reads beside
// writers that never block is 50 times as long (see bench/NOTES.md).
//
// Records that have been appended and are not yet visible are the coordinator's line. Some
// of them may be in the memtable, hidden.
//
// # Which goroutine syncs
//
// One rule: the goroutine that appended a record has the log flushed, after it has unlocked
// appendMu. A caller that waits for that record calls [Log.FlushOrSync] and may sync the
// log itself. [wal.Log] lets it if
//
//   - no other goroutine writes or syncs the log, and no record is queued that only waits
//     to be written, and
//   - recent syncs took at most 5 ms.
//
// In all other cases the log's own goroutine syncs. The orchestrator and Propose call
// [Log.Flush], which syncs no records: an orchestrator that waited for the disk would hold
// up its partition, and Propose leads no partition, so it could not apply what it synced.
// (At the end of a log segment Flush waits for the sync of that segment, and may create and
// sync the next one. While another goroutine writes it waits if 32 MiB are unwritten.)
//
// If no further sync is waiting and the sync served few records, the goroutine that synced
// also applies them ([Coordinator.RunReady]); else the log wakes the leaders concerned
// ([Coordinator.Wake]).
//
// # Where a write can wait
//
// In this order, after the client and the connection. An error from waits 1 to 6 means that
// the write did not happen. Every wait but 7 also ends when ctx does, with the error of ctx
// unless the table says otherwise.
//
//	   wait                          bound       ended by                          error
//	 1 the service's gate            its target  other work ends                   kv.OverloadError
//	 2 large calls for each other    1 s         a large call ends                 kv.OverloadError large_writes_in_flight
//	 3 room in memtables             1 s         the rate allows it; if they are   kv.OverloadError memtables_full
//	                                             full, a flush ends
//	 4 the inbox: full, or queued    1 s if full the leader takes the group        kv.OverloadError inbox_full
//	 5 proposals for each other      1 s         a proposal is in all memtables    kv.OverloadError batches_in_flight
//	 6 space in the log              none        the log has reserved space        kv.ReadOnlyError if there is none
//	 7 its own write or sync         none        the system call                   kv.ErrFailed; with ErrUncertain if appended
//	 8 durability and order          none        the record is durable, and those  ctx with ErrUncertain;
//	                                             it must follow are visible        kv.ErrFailed with ErrUncertain
//	 9 an earlier attempt            none        that is durable and visible       ctx with ErrUncertain
//	10 a conflicting write           none        that write is visible             ctx; kv.ConflictError for a transaction
//
// Wait 1 is in package admission; its target is a few milliseconds of queueing under
// overload. Waits 2, 3 and 5 are in package engine, before it takes any lock. A caller that
// leads skips 4. In 6 its group stays with the coordinator; a caller that gives up in 4 or 6
// has written nothing. Wait 7 has no end but the system call, because the caller itself is
// inside it: if a quick disk begins to hang, the one caller inside the sync cannot give up.
// Wait 8 is everything between append and decide. It includes the log's short pause after a
// sync, in which answered writers can append again; a caller that gives up there does not know the outcome. Wait 9
// comes only for a known request id. Wait 10 comes only for writes that depend on others
// and lost: a conditional write then tries again, a transaction returns the conflict.
//
// appendMu, WriteGroup.mu and the locks of the log are held for work in memory only.
//
// # Durability, order, and early records
//
// A micro-batch with groups of both kinds becomes two records: one for groups in which a
// write asks for a sync, and one for the others.
//
// A proposal leaves a mark in every partition that it has read (read_mark.go): a later write
// to what it read stays hidden until the proposal is visible. (A write of one key that
// depends on that key alone needs none: the order of the log is enough.)
//
// A newer record B may be shown to readers of single keys, and answered, before an older
// record A of the same partition that is not ready, since it waits for a sync, for another
// partition or for a mark. Both are in the memtable, A hidden. B is then early (early.go).
// A record is never early if it
//
//   - lies in several partitions, or deletes a range,
//   - holds a write that was sent again: the first attempt may be one of those before it,
//   - shares a key, or a range, with a batch, a transaction or a range delete before it
//     that is not visible.
//
// One such write keeps the whole record from being early, for all its callers.
//
//	I1. Records enter the memtable in the order of the log. Each is visible once it has
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
// A proposal bypasses the inbox. Its caller locks the appendMu of all partitions concerned
// in ascending order, checks whether anything that was read has changed, appends one record
// and unlocks, before any I/O. A refused proposal writes nothing to the log.
//
//	I4. A goroutine that holds appendMu finds everything that was appended before in a
//	    memtable or in the line, so checking both finds every change. If the reads are
//	    older than the memtables, Changed returns partition.ErrStale.
//	I5. The request id of a write is remembered before any reader can see what it wrote.
//	    So if a condition fails and the request id is unknown, the condition failed because
//	    of another write, not of an earlier attempt of this one.
//
// Other designs keep an array of last writers by hash to find conflicts. Here the hash index
// of the memtable serves, with no false conflicts between keys and at no cost to writes that
// no transaction depends on.
//
// # The log, also a replicated one
//
// [Log] is what a coordinator needs of any log. kvd has the local one, [wal.Log]. In terms
// of Raft its methods are:
//
//	Append              proposes an entry, which the node has validated and numbered
//	Flush, FlushOrSync  hand proposed entries to the replication loop
//	Reached             is the position up to which entries are committed, the same for each level
//	OnRoom              tells when the bound on uncommitted entries has room
//	Err                 ends a coordinator
//
// Callers and flushes wait for a log by three more methods, [CallerLog]:
//
//	AwaitRoom           OnRoom for a goroutine
//	End                 is the position of the last proposed entry
//	WaitSynced          returns once entries are committed up to a position
//
// A coordinator applies what it appended, in that order, and nothing else. So a replicated
// log gives each Raft term a coordinator of its own. When the term ends, Err says so:
// callers whose records were not committed by then get ErrUncertain, Close returns, and the
// node applies what the cluster commits from then on to the same [Tree], without a
// coordinator. Applying a record makes no decision: a record holds the outcome of its
// validation, its numbers, expiries and request ids. A new leader calls
// [Coordinator.Remember] for the records that it has applied, as recovery does.
package commit
