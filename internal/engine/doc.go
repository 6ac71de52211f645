// Package engine is the store: partitions, one commit log for all of them, and
// the numbers that order everything. In other texts: the storage engine, the
// database.
//
// It knows which partition a key belongs to, when background work runs, how much
// memory the memtables may take, and which versions somebody still reads. It does
// not know the network, nor the format of any file.
//
// # Promises
//
//	G1. A write is acknowledged at the durability it asked for: see kv.Durability.
//	G2. After a crash at any moment, every write acknowledged at its durability
//	    is there, and every other write, batch or not, is wholly there or wholly
//	    absent.
//	G3. Transactions, batches, conditional writes and reads of one version are
//	    strictly serializable, in the order of their versions; single-key operations
//	    are linearizable. LookupAt and Scan read one version of all partitions, which
//	    holds every write acknowledged before the call. That a key which was found
//	    expires is a write too, as far as the transaction tells of it: see below.
//	G4. Sequence numbers are unique and grow, across restarts too.
//	G5. Damage is reported as a *kv.CorruptionError, never served.
//	G6. Queues, batches and memtables are bounded. Past the bound a caller waits,
//	    gradually longer, and in the end gets a *kv.OverloadError.
//	G7. A named write (kv.RequestID) is applied once, however often and over how many
//	    restarts it is sent. Where that can no longer be told the answer is
//	    kv.ErrUncertain, never a second application.
//	G8. A key is not seen from its expiry on, and never again: not after a restart,
//	    a crash or a jump of the machine's clock.
//
// # The numbers
//
// The log gives each commit unit the next number. Partitions apply at their own
// pace, so the highest applied number says little; the visible number is the
// highest below which everything has been applied. A snapshot waits until the
// visible number has reached what any partition may have acknowledged, and reads
// there.
//
// A single Get reads what its own partition has published, which may be ahead of
// the visible number. It orders with all that touches its key.
//
// # Expiry and transactions
//
// A condition (kv.Guard, kv.Write.If) holds when the record is appended to the log, by
// the store's clock too: the proposal says when the first key that was found expires,
// and if that has come under appendMu, the condition is evaluated again. A transaction
// names the keys that it found with an expiry (kv.Transaction.Expiring), which are
// treated alike: it conflicts if one has expired by then. Without that a commit would
// have to read all that the transaction read again, whole ranges too. What remains: a
// record is in the log before it is visible, so a reader at the moment of expiry may see
// neither the key nor what was written while it was there.
//
// # A transaction
//
// It is optimistic: its reads come from a snapshot, its writes are the caller's
// until Commit brings both. The partitions concerned then hold still for as long
// as it takes to look into their memtables, and the log gives the record its
// place; what lost has written nothing. A condition is the same with one read. The
// wait for the disk comes after, so commits share syncs with everything else.
//
// # A scan
//
// Each partition gives what the scan sees in batches of its own (partition.Walk,
// mergeiter.Visible, and below them one loop over a block, sstable's Fill): keys are
// copied into the batch, and values too, unless they lie in a cached block, of which
// the batch keeps some. Keys lie in one partition each, so the scan merges the batches
// by key alone, with one comparison of two words for a match: see merge.
//
// A batch grows from a share of 64 items to 256 items or 64 KiB. What comes out of
// cached blocks the caller reads itself: with a goroutine ahead of it, what that one
// wrote had to come from the other processor's cache, and a scan of 1 M entries took
// 150 ns of all processors together for each, and 100 of waiting, where it now takes
// 60 of both (two cores, 4 partitions, entries of 116 bytes). If most of a long batch
// had to be read or came out of a memtable, the next is read by a goroutine while
// this one is consumed: so both are busy, and on a cold disk the reads of the
// partitions overlap. The caller takes a batch that nobody has begun to read itself,
// so a busy machine costs nothing. A scan holds two batches for each partition, and of
// values larger than a batch one; beside them cached blocks of twice a batch's bytes,
// and what its iterators have read ahead.
//
//	S1. Whoever reads a batch holds the lock of its source, and nobody else reads
//	    from the partition. Files and memtables are taken from a source under it.
//	S2. A batch is read again only after the merge has moved past its last item.
//	S3. An error has its place behind the items that were read before it, in the
//	    order of keys. A source that was closed under a scan is an error, not an end.
//	S4. Close returns when no goroutine of the scan is left.
//
// # Time
//
// Keys expire by the store's clock, which never goes back: see clock. Whoever pins
// a version takes the time with it and reads at both, so what a snapshot sees never
// changes; compaction drops what has expired for the oldest of them. Snapshots are
// leases: nothing is kept for a caller that vanished.
//
// # Failure
//
// A failed write or sync of the log, or of a manifest, is final: nothing is
// acknowledged after it, Failed is closed, and the owner should end the process
// and open the store again. So is a directory or a file of the log that is no longer
// where it was opened: the keeper looks every second. A failed flush or compaction is not: its inputs are
// still there, and it is tried again with growing pauses.
//
// # Recovery
//
// Open replays the log within the memory that the memtables have now: what does not fit at
// first is replayed after the log is durable, with flushes in between, and merges where
// they have made many deltas. See replay.go. A crash in the middle leaves the log as it
// was, and tables that hold a part of it, which the next recovery skips. Log segments go
// while the log is replayed only if the disk has no space for tables, and only up to
// what the manifests of all partitions cover.
//
// # Read only
//
// A file system may be read-only when the store is opened, or become so while the store is
// open, as after an error of the disk: see disk and ReadOnlyCause. Reads go on, writes fail
// with a *kv.ReadOnlyError. The keeper looks every second, and has the log and background
// work leave the files alone; writes go on once the file system is writable again. If the
// log met it before the keeper did, the store has failed like after any error of the log:
// records that were under way are neither durable nor certainly lost, so that only
// recovery can say which are there. Open then serves what recovery would find, without a
// change of any file, until the store is closed and opened on a writable file system.
//
// With Options.ReadOnly a store that no process writes to is opened without a change of
// any file: the log is replayed into memory and stays as it is, nothing is flushed or
// compacted, and the locks are shared. It shows what recovery would.
//
// # Directory
//
//	STORE            what the store is: see package descriptor
//	CLOCK            a time that the store's clock has not passed: see package
//	                 descriptor
//	LOCK             held by the process that has the store open, with a lock on the
//	                 directory: see package descriptor
//	wal/             the commit log
//	p-0000/ ...      the partitions
//	lost+found/      files that are not ours
package engine
