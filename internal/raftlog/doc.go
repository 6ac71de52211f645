// Package raftlog is the log of a node of a cluster: numbered segment files in one directory
// that hold the Raft entries, the hard states and the snapshot marks of all groups of the
// node. It implements [raft.Storage]. In other texts: Raft log, replicated write-ahead log.
//
// It knows entries (opaque bytes with an index and a term), groups and durability. It does
// not know what an entry means, nor when one is committed.
//
// A node has one group today. The format has a group number in every frame, so that several
// groups can share the log, and with it every sync.
//
// R1. What [Log.Write] has synced is read back after any crash, until an entry of a later
// Write overwrites it or [Log.Compact] gives it up.
// R2. Open gives the state after a prefix of the frames that were written.
// R3. A torn tail is dropped and reported. Damage to what was synced refuses to open, with the
// file and the offset, and changes nothing: a replica that has lost entries which it has
// acknowledged must not vote.
// R4. After a failed write or sync every call fails, and no second sync is tried.
// R5. An entry replaces every entry with its index or a higher one, on the disk and in the
// cache.
//
// # One log
//
// A node writes every entry once and syncs it once. In a cluster this log takes the place of
// package wal: the store has no segments of that package, a record becomes an entry, and
// tables are flushed from what is committed here, as they are from the wal on a single node.
// So there is no second log and no second sync. The two packages have the same layout of files
// (header, frames at multiples of 8, a claim in each frame of how far the log was synced), but
// not yet the same code. The next steps towards one package, in this order: move
// the parts of wal that know neither records nor numbers (reservation of space, zeroed
// segments, the syncing role, archiving) below both; let the frames of wal carry the group, so
// that a data frame of a single node is an entries frame of term 0; then a single-node store
// becomes the first member of a cluster without copying its log.
//
// # Files
//
// A segment is called 000042.raft; numbers are consecutive. It holds a header and then
// frames, one after the other, each at a multiple of 8. Numbers are little-endian, checksums
// are CRC-32C. After the last frame is the end of the file.
//
//	segment header, 64 bytes
//	 0  8  magic "kvd.rft\n"
//	 8  4  format version: 1
//	12  4  checksum of bytes 0-11 and 16-63
//	16  8  store id
//	24  8  number of this segment
//	32  8  where the log ended when it was closed, if this was its last segment; 0: it was not
//	40 24  zero
//
//	frame
//	 0  4  magic "RFRM"
//	 4  4  checksum of store id, segment number and offset of the frame, as three numbers of
//	       8 bytes, and of bytes 8-63
//	 8  4  checksum of payload and padding
//	12  4  length of the payload
//	16  4  kind: 1 start, 2 end, 3 mark, 4 hard state, 5 snapshot, 6 compaction, 7 entries
//	20  4  group; 0 in frames of kind 1 to 3
//	24  8  number of the frame: one more than the frame before, over all segments
//	32  8  lowest segment that must exist
//	40  8  segment, and
//	48  8  offset, up to which the log was synced when the frame was laid out
//	56  8  zero
//	64     payload
//	       padding: zeros up to a multiple of 8
//
//	hard state  u64 term | u64 vote | u64 commit
//	snapshot    u8 installed (1: the log is empty after it) | u64 index | u64 term |
//	            configuration: voters, learners, outgoing voters, next learners, each as
//	            u32 count and u64 ids | u8 leaves the joint configuration by itself
//	compaction  u64 index | u64 term: entries up to index are given up
//	entries     u64 index of the first | entry ...
//	entry       u64 term | u8 type, as in raftpb | u32 length | data
//
// A segment begins with a start frame. An end frame is the last frame of a segment that has a
// successor. A mark notes how far the log is synced, or which segment is the lowest. A Write
// is laid out as snapshot, hard state, entries, so that the term on the disk is never below
// that of an entry, nor the commit index below what the node knew when the entry came: the consensus relies
// on that for entries that change the configuration. If a crash keeps the hard state and drops the
// entries, the commit index is lowered to the last entry; a lower one is right, as what is left
// was committed. But if the entries replace others and the commit index counts them, a crash that drops
// them would leave a replaced entry that counts as committed. Then the commit index is first written as that
// before the entries, and as it is after the first of them, which cuts off all that are replaced.
//
// # Torn or damaged
//
// Every frame has the number that follows the one before, so none can be missing between two,
// and its checksum covers its place. An unreadable frame that a later frame says was synced is
// damage. If no later one says so, it was never acknowledged, or it is in the last Write and was
// damaged afterwards. To shrink that window, [Log.Mark] writes a mark when the log is idle, and
// Close writes into the header where the log ends. A segment that lost its end after a crash
// is taken for one with a torn tail: no file says how long it was.
//
// # Segments
//
// The next segment exists, durably, before the old one gets its end frame, which is synced
// before anything is written to the next one. So only the last segment with frames can have a
// torn tail, and segments without frames may follow it. A
// new segment restates the hard state, the snapshot mark and the compaction of every group, and so
// does Open; what older segments hold besides is entries. [Log.Reclaim] writes the new
// lowest segment to a mark, syncs it, and then deletes the older ones, a few in one call.
//
// # Recovery
//
// Open reads all segments and changes nothing until everything has been checked. Like wal,
// it does not trust the page cache: it rewrites, in place and with the same bytes, the frames
// that no later one says were synced, cuts off what follows, and syncs.
package raftlog
