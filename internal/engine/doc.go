// Package engine is the store: partitions, one commit log for all of them, and
// the numbers that order all writes. In other texts: the storage engine, the
// database.
//
// It knows which partition a key belongs to, when background work runs, how much
// memory the memtables may take, and which versions readers still need. It knows
// neither the network nor the format of any file but BALLAST.
//
// # Promises
//
//	G1. A write is acknowledged once it has the durability that it asked for: see
//	    kv.Durability.
//	G2. After a crash at any moment, every acknowledged write whose durability covers that
//	    crash (buffered a crash of the process, sync also one of the machine) is present, and
//	    every other write, batch or not, is either wholly present or wholly absent.
//	G3. Transactions, batches, conditional writes and reads of one version are
//	    strictly serializable, in the order of their versions; single-key operations
//	    are linearizable. LookupAt, for many keys, and Scan read one version of all
//	    partitions, which holds every write acknowledged before the call. The expiry of a
//	    key counts as a write for conditions, and for transactions that name the key: see
//	    "Expiry and transactions", also for the one exception.
//	G4. The numbers of commit units are unique and grow, across restarts too.
//	G5. Damage is reported as a *kv.CorruptionError, never served.
//	G6. Queues, batches and memtables are bounded. As memtables fill, writers are slowed more
//	    and more. A call that finds a bound reached waits, and then gets a *kv.OverloadError: see
//	    the tables of waits in commit/doc.go and internal/README.md.
//	G7. A write with a request id (kv.RequestID) is applied at most once, however often
//	    and across however many restarts it is sent. If the store no longer knows
//	    whether it was applied, the answer is kv.ErrUncertain, never a second
//	    application. Attempts may come in any order: see commit.RequestWindow.
//	G8. From its expiry on a key is not seen, and it never comes back: not after a
//	    restart, a crash or a jump of the machine's clock.
//
// # The numbers
//
// A commit unit is a single write or an atomic batch. The log gives each the next sequence
// number, in all partitions together. Partitions apply records at their own pace, so units
// with smaller numbers may become visible later. The coordinators report to the sequencer what
// they have made visible. From that it computes the visible number: the largest number such
// that it and all before it are visible to single reads in their partitions. Every partition
// keeps an upper bound of the numbers whose writers it has answered. A snapshot waits until
// the visible number has reached the largest of these bounds, and reads at the visible number.
//
// A single Get reads what its own partition shows, which may be ahead of the visible number.
// It is ordered with all operations on its key.
//
// # Expiry and transactions
//
// A condition (kv.Guard for a batch, kv.Write.If for a single write) holds at the moment when
// the record is appended to the log; a key that has expired by then, by the store's clock,
// counts as absent. The engine evaluates the condition earlier, and hands to package commit
// the writes, what was read, and the earliest expiry of the keys that were found. The append checks that expiry under appendMu. If it has passed, nothing is appended,
// and the engine evaluates the condition again, without the lock. A commit names the keys that
// it read and that have an expiry (kv.Transaction.Expiring). The transaction conflicts if one
// of them has expired when its record is appended, so naming the keys that expire first is
// enough; the Go client does that. Without these names a commit would have to repeat every
// read of the transaction, including whole ranges.
//
// In a cluster an entry of the log says what time it is from its number on, and readers see that
// time when the entry is committed. A record is numbered before that, so it is checked by the time
// of the newest entry that is numbered (numberedTime). A caller that loses by that time waits until
// the entry can be read before it reads again: until then it would find what it found before.
//
// The exception: a record is in the log before it is visible. Say that "put b if a is present"
// is appended just before a expires. Until the record is visible, a reader after the expiry
// sees neither a nor b: to that reader the expiry comes before the put. The put is
// acknowledged only once its record is visible.
//
// # A transaction
//
// Transactions are optimistic: reads come from a snapshot, the caller buffers its writes, and
// then passes reads and writes to Commit. Commit holds the appendMu of the partitions
// concerned while it looks into their memtables and appends the record to the log, in memory.
// A transaction that lost has written nothing. Conditional batches commit in the same way;
// their reads are of the newest state, and after a conflict the engine evaluates the
// conditions again. What depends on no key but the one that it writes takes the way of plain
// writes, and is checked there. The wait for the disk comes after the locks are released, so
// commits share syncs with all other writes.
//
// # A scan
//
// A Scanner has one source for each partition. A source reads, in batches, a walk: the items
// of the partition in key order (partition.Walk, which reads mergeiter.Visible, which reads
// iterators of memtables and tables). Keys are copied into the batch. A value in a cached
// block is not copied: the batch holds the block, up to a limit (see below). Other values are
// copied. Each key lies in one partition, so the scan merges the batches by key alone, mostly
// by comparing one word: see scan_merge.go.
//
// The first batches of all partitions together have about 64 items, later ones up to 256 items
// or 64 KiB each. The caller itself reads what comes from cached blocks, since a goroutine
// that reads ahead would write items into another processor's cache: 150 ns of processor time
// per item against 60 (see bench/NOTES.md). If most of a long batch had to be read from disk
// or came from a memtable, a goroutine reads the next batch while the caller consumes this
// one; on a cold disk the reads of the partitions then overlap. If no goroutine has begun the
// next batch when the caller needs it, the caller reads it, so the scan does not wait for a
// goroutine that a busy machine has not scheduled.
//
// A scan holds in memory one value of more than 32 KiB, read when the scan comes to its item.
// For each partition it holds two batches, cached blocks of at most twice a batch's bytes, and
// what its iterators have read ahead.
//
//	S1. A goroutine that reads a batch holds the lock of its source, so no other goroutine of
//	    this scan reads from that partition. The maintenance loop releases the files and
//	    memtables of a source under that lock.
//	S2. A batch is overwritten only after the merge has moved past its last item.
//	S3. An error takes its place in the order of keys: after the items that were read
//	    before it. A source that was closed during a scan is an error, not an end.
//	S4. Close returns when no goroutine of the scan is left.
//
// # Time
//
// Keys expire by the store's clock, which never goes back: see clock.go. A pin on a version
// includes the clock's time, and its readers read at both, so what a snapshot sees never
// changes. Compaction drops what had expired by the clock time of the oldest pin. Snapshots
// are leases: after its lease ends, nothing is kept for a client that vanished.
//
// # Failure
//
// A failed write or sync of the log, or of a manifest, is final, unless it failed for lack of
// space before it had an effect: no write is acknowledged after it, Failed is closed, and the
// owner should end the process and open the store again. The same holds if a directory or a
// file of the log is no longer where it was opened; the maintenance loop checks every second.
// A failed flush or compaction is not final: its inputs still exist, and it is retried with
// growing pauses.
//
// # Recovery
//
// Open replays the log within the memtables' budget, which may be smaller than the one that
// the log was written with. If the log does not fit, recovery replays up to the budget, syncs
// the log (only durable records may be flushed), and flushes before it goes on; where flushes
// have made many deltas, compactions run too. See replay.go. A crash during recovery loses
// nothing: the log still holds every record that is not in tables, and the next recovery skips
// the others. Recovery deletes log segments only if the disk has no space for tables, and only
// those whose records are in the tables of every partition concerned, according to the
// manifests.
//
// # A member of a cluster
//
// With Options.Replicated the log is that of a cluster, and the store has none of its own:
// see replicated/doc.go for what then holds in place of G1, G2 and G8. Writes are taken while
// this node leads ([kv.NotLeaderError] otherwise), by coordinators that are made for that time;
// the rest of the time member.go inserts what is committed. The engine knows no consensus:
// what it needs of the log is [ReplicatedLog], and what the log calls is [Member]. The store of a
// single node becomes a member by [ConvertToMember].
//
// # Read only
//
// A file system may be read-only when the store is opened, or become so while the store is
// open, for instance after a disk error: see disk.go and ReadOnlyCause. Reads continue, writes
// fail with a *kv.ReadOnlyError. The maintenance loop checks every second, and keeps the log
// and background work from changing files. Writes resume once the file system is writable
// again; if it was read-only at Open, only the next Open takes writes. If a write of the log
// fails before the maintenance loop has noticed, the store has failed as after any error of
// the log: records that were in progress are neither durable nor certainly lost, and only
// recovery can tell which are present. Open then serves what recovery would find, without
// changing any file, until the store is closed and opened on a writable file system.
//
// With Options.ReadOnly, a store that no process writes to is opened without changing any
// file: the log is replayed into memory and stays as it is, nothing is flushed or
// compacted, and the locks are shared. Readers see what recovery would find.
//
// The names in the directory of a store are listed in package descriptor.
package engine
