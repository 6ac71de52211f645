// Package engine is the store: partitions, one commit log for all of them, and
// the numbers that order all writes. In other texts: the storage engine, the
// database.
//
// It knows which partition a key belongs to, when background work runs, how much
// memory the memtables may take, and which versions readers still need. It knows
// neither the network nor the format of any file.
//
// # Promises
//
//	G1. A write is acknowledged once it has the durability that it asked for: see
//	    kv.Durability.
//	G2. After a crash at any moment, every write that was acknowledged at its
//	    durability is present, and every other write, batch or not, is either wholly
//	    present or wholly absent.
//	G3. Transactions, batches, conditional writes and reads of one version are
//	    strictly serializable, in the order of their versions; single-key operations
//	    are linearizable. LookupAt and Scan read one version of all partitions, which
//	    holds every write acknowledged before the call. The expiry of a key counts as
//	    a write for conditions, and for transactions that name the key: see below.
//	G4. Sequence numbers are unique and grow, across restarts too.
//	G5. Damage is reported as a *kv.CorruptionError, never served.
//	G6. Queues, batches and memtables are bounded. Near and past a bound a caller waits,
//	    gradually longer, and finally gets a *kv.OverloadError.
//	G7. A write with a request id (kv.RequestID) is applied at most once, however often
//	    and across however many restarts it is sent. If the store no longer knows
//	    whether it was applied, the answer is kv.ErrUncertain, never a second
//	    application.
//	G8. From its expiry on a key is not seen, and it never comes back: not after a
//	    restart, a crash or a jump of the machine's clock.
//
// # The numbers
//
// The log gives each commit unit the next number. Partitions apply records at their own
// pace, so below the highest applied number others may be missing. The visible number is
// the highest number up to which everything has been applied. A snapshot waits until
// the visible number has reached every number that may have been acknowledged in any
// partition, and reads there.
//
// A single Get reads what its own partition has published, which may be ahead of
// the visible number. It is ordered with all operations on its key.
//
// # Expiry and transactions
//
// A condition (kv.Guard, kv.Write.If) holds at the moment when the record is appended to
// the log, also by the store's clock. The proposal carries the earliest expiry of the keys
// that were found. If that time has passed when appendMu is held, the condition is
// evaluated again. A transaction names the keys that it found with an expiry
// (kv.Transaction.Expiring); it conflicts if one of them has expired by then. Without
// these names a commit would have to repeat every read of the transaction, including
// whole ranges. One gap remains, since a record is in the log before it is visible:
// "put b if a is present" is logged just before a expires, and until it is visible a reader
// sees neither a nor b.
//
// # A transaction
//
// Transactions are optimistic: reads come from a snapshot, and the caller keeps its
// writes until Commit brings both. Commit locks the partitions concerned for as long as
// it takes to look into their memtables, and the log gives the record its place. A
// transaction that lost has written nothing. A conditional write is a transaction with
// one read. The wait for the disk comes after the locks are released, so commits share
// syncs with all other writes.
//
// # A scan
//
// Each partition returns what the scan sees in batches (partition.Walk,
// mergeiter.Visible, and below them one loop over a block, sstable's Fill). Keys are
// copied into the batch. Values are copied too, unless they lie in a cached block; the
// batch then keeps some of those blocks. Each key lies in one partition, so the scan
// merges the batches by key alone, mostly by comparing 16 bytes: see
// merge.
//
// The first batches of all partitions together have 64 items, later ones up to 256 items or
// 64 KiB each. The caller itself reads
// what comes from cached blocks, since a goroutine that reads ahead would write items
// into another processor's cache: 150 ns of processor time per item against 60 (see
// bench/NOTES.md). If most of a long batch had to be read from disk or came from a
// memtable, a goroutine reads the next batch while the caller consumes this one; on a
// cold disk the reads of the partitions then overlap. If no goroutine has begun the next
// batch when the caller needs it, the caller reads it, so a busy machine delays nothing.
// A scan holds one large value, and for each partition two batches, cached blocks of at most
// twice a batch's bytes, and what its iterators have read ahead.
//
//	S1. A goroutine that reads a batch holds the lock of its source, and no other one
//	    reads from the partition. The maintenance loop releases the files and memtables
//	    of a source under that lock.
//	S2. A batch is overwritten only after the merge has moved past its last item.
//	S3. An error takes its place in the order of keys: after the items that were read
//	    before it. A source that was closed during a scan is an error, not an end.
//	S4. Close returns when no goroutine of the scan is left.
//
// # Time
//
// Keys expire by the store's clock, which never goes back: see clock. A pin on a version
// includes the clock's time, and its readers read at both, so what a snapshot sees never
// changes. Compaction drops what has expired for the oldest pin. Snapshots are leases:
// after its lease ends, nothing is kept for a client that vanished.
//
// # Failure
//
// A failed write or sync of the log, or of a manifest, is final: no write is
// acknowledged after it, Failed is closed, and the owner should end the process
// and open the store again. The same holds if a directory or a file of the log is no
// longer where it was opened; the maintenance loop checks every second. A failed flush
// or compaction is not final: its inputs still exist, and it is retried with growing
// pauses.
//
// # Recovery
//
// Open replays the log within the memtables' budget, which may be smaller than the one that
// the log was written with. What does not fit
// at first is replayed after the log is durable, with flushes in between, and with
// compactions where flushes have made many deltas. See replay.go. After a crash during
// recovery the log is as it was, and the next recovery skips records that are in tables. Log segments are reclaimed during replay only if the disk has no space
// for tables, and only up to what the manifests of all partitions cover.
//
// # Read only
//
// A file system may be read-only when the store is opened, or become so while the store
// is open, for instance after a disk error: see disk and ReadOnlyCause. Reads continue,
// writes fail with a *kv.ReadOnlyError. The maintenance loop checks every second, and
// keeps the log and background work from changing files; writes resume once the file
// system is writable again. If a write of the log fails before the maintenance loop has
// noticed, the store has failed as after any error of the log: records that were in progress
// are neither durable nor certainly lost, and only recovery can tell which are present.
// Open then serves what recovery would find, without changing any file, until the store
// is closed and opened on a writable file system.
//
// With Options.ReadOnly, a store that no process writes to is opened without changing any
// file: the log is replayed into memory and stays as it is, nothing is flushed or
// compacted, and the locks are shared. Readers see what recovery would find.
//
// The names in the directory of a store are listed in package descriptor.
package engine
