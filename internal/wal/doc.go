// Package wal is the node's one commit log: numbered segment files in one directory, to
// which all partitions append. In other texts: write-ahead log, redo log, journal.
//
// It knows records (opaque bytes that take some sequence numbers), segments and
// durability. It does not know keys or partitions, nor when a record is no longer
// needed: the engine tells it, by [Log.Reclaim].
//
// W1. A record that was acknowledged as synced is replayed after any crash, until its
// segment is reclaimed.
// W2. Replay gives a prefix of what was appended, each record once. (The reclaimed
// segments are missing at its front.)
// W3. No sequence number is given out twice, not even one whose record a crash took.
// W4. A torn tail is dropped and reported; damage to synced records refuses to open, with
// the file and the offset. The frames after the unreadable place tell the two apart.
// W5. After a failed write or sync nothing is acknowledged any more, and no second sync
// is tried.
//
// # The path of a record
//
// [Log.Append] copies it to the open frame, in memory, and gives it its numbers.
// [Log.Flush] writes the frame; of several callers one leads and writes for
// the others, on its own goroutine. Records of all durabilities share a frame. The
// syncing goroutine syncs: while a sync runs, buffered records are written and
// acknowledged, and records that wait for a sync gather; they are then written as one
// frame, and one sync serves them all. A lone writer waits for one write and one
// fdatasync.
//
// A caller that waits for one of the records calls [Log.FlushOrSync] instead: it writes
// on its own goroutine, and syncs there too if no other goroutine writes or syncs and
// recent syncs were quick. The goroutine that synced then applies what became durable, if
// nothing else waits for a sync ([Waker]). So a frame of synced writes wakes no goroutine
// between its arrival at the server and its answer: 0.91 of the processor time for a put
// (bench/NOTES.md). The price: if a quick disk begins to hang, one caller at a time cannot
// give up before its write or sync returns.
//
// After a sync, the syncing goroutine gives the writers that it served as long as one sync
// takes to append again, if they usually do: see gathering. Otherwise W writers that each
// wait for their sync would split into two halves that take turns, and a sync would serve
// W/2: with 16 writers 7.8 puts instead of 14.
//
// Syncs do not overlap: a disk does one after the other, and two at a time gave 0.74 to
// 0.79 times as many puts a second.
//
// Every frame is written by a write call. A memory-mapped segment costs less, but on a file
// system that stalls (fsfreeze, a snapshot of the volume) a page fault blocks the whole
// process: see package vfs. Instead the log extends the segment by 64 KiB of zeros at a
// time and overwrites these: 0.79 of the processor time of PUT_HEAVY. A sync in the
// middle writes all of the zeros, so a log that is synced often, or seldom written to, is
// not extended.
//
// Once a record asks for a sync, segments are filled with zeros, and synced, before they
// are used: fdatasync then need not record a new length, which allows 4,300 instead of
// 3,000 syncs a second for one writer. It also doubles the bytes written, so a log without
// synced records does without. The first segments have 1, 2, 4 ... MiB of zeros, so that a
// new log soon has some, and a short one does not have many.
//
// # Space
//
// A write of the log must not meet a full disk, because a failed write ends the log. So
// [Log.Append] admits a record only if it surely fits into the space that the active
// segment has on the disk (zeros, or a reservation by fallocate), after the records
// admitted before it; 4 KiB stay for marks and for the frames that end a segment. A
// goroutine reserves ahead: as much as was appended since the log was last idle, at
// least 1 MiB and at most half a segment. Append waits for no disk: if the reservation
// has not caught up it returns [ErrNoRoomYet], and its caller retries when [Log.OnRoom] or
// [Log.AwaitRoom] says so. If there is no space, Append refuses what does not fit, and
// [Options.NoSpace] is told before the last of the space is used. This costs one fallocate
// per 7 MB of 1 KiB puts, and no processor time above the noise.
//
// A rotation makes room in the next segment for everything admitted, and between that and
// the switch Append admits what fits into both. If there is no space for a next segment,
// the log continues in the active one beyond its length.
//
// Space that is not needed is given back: when the log leaves a segment, when it is idle
// ([Log.Shrink]: the log leaves a large segment without unflushed records for a small one,
// or cuts what is reserved) and on a full disk ([Log.Release], which needs no space itself
// and keeps room for some hundred deletes).
//
// A log whose recovery cannot write is suspended: it was read and replayed, Append refuses
// records, its files hold the same records as before, and WaitSynced fails, since a power
// cut could still take the same records as before. [Log.Resume] tries the writing part again.
//
// # Files
//
// A segment is called 000042.wal; numbers only grow. It holds a header and then frames, one
// after the other, each at a multiple of 8. Numbers are little-endian, checksums are
// CRC-32C. After the last frame there are zeros, or the end of the file. No valid header
// or frame begins with zeros.
//
//	segment header, 64 bytes
//	 0  8  magic "kvd.wal\n"
//	 8  4  format version: 2; 1 is read too, and differs in the payload of records alone
//	12  4  checksum of bytes 0-11 and 16-63
//	16  8  store id
//	24  8  number of this segment
//	32  8  number of the segment before; 0: none
//	40  8  lowest of the segments that this one is a copy of; 0: it is none, as all are now
//	48  8  where the log ended when it was closed in order, or where a snapshot of it ends
//	       (see Hold.Snapshot), which has no close frame; 0: neither
//	56  8  zero
//
//	frame
//	 0  4  magic "WFRM"
//	 4  4  checksum of store id, segment number and offset of the frame, as three
//	       numbers of 8 bytes, and of bytes 8-63
//	 8  4  checksum of payload and padding
//	12  4  length of the payload
//	16  4  kind: 1 data, 2 mark, 3 start, 4 end, 5 close, 6 copied
//	20  4  records in the payload
//	24  8  last sequence number of any record before this frame
//	32  8  sequence number that follows the frame: all below were given out, or
//	       skipped
//	40  8  lowest segment that must exist
//	48  8  segment, and
//	56  8  offset, up to which the log was synced when the frame was laid out
//	64     payload: records, one after the other
//	       padding: zeros up to a multiple of 8
//
//	record
//	 0  4  length of the payload
//	 4  4  units: how many sequence numbers it takes
//	 8  8  the first of them
//	16     payload
//
// Only data frames have records. Every segment in use begins with a start frame. A mark
// notes how far the log is synced (when it is idle) or that segments were reclaimed. An end
// frame is the last one of a segment that has a successor. A close frame is the last one of
// a log closed in order; an end frame follows it when the log is opened again. A copied
// frame ends the copy that recovery made in earlier versions.
//
// Golden files of each version are in testdata.
//
// # How missing parts are detected
//
// A frame names the last number before it, so no frame can be missing between two. Its
// checksum covers its place, so it cannot be valid elsewhere. A header names the segment
// before; an end frame says that there is a next one; each frame names the lowest segment
// that must exist. What remains is the upper end.
//
// Every frame says how far the log was synced before it was written, so an unreadable
// frame that a later one says was synced is damage. If no later one says so, it belonged to
// the last frame: torn, and never acknowledged as synced, or acknowledged and then damaged.
// To shrink that window, an idle log adds a mark after [DefaultIdleMark], and an orderly
// Close writes into the header where the log ended.
//
// A last segment that was cut looks like a torn tail if the cut removed every later frame that
// says how far the log was synced, marks included. Two things outside of the frames tell the
// two apart. After an orderly Close, the header does. After a crash, a log that ends before a
// number that tables hold ([Options.MinSeq]) was synced further, since a flush waits for that.
// What remains is not noticed: a cut, after a crash and before the next opening, behind the
// place up to which every partition has flushed. If it falls between two frames, nothing is
// dropped either. An archive of the log has what was cut off, as far as it came.
//
// # Rotation
//
// The next segment exists, durably, before an end frame is written to the old one. The
// syncing goroutine syncs the end of the old segment before anything in the new one, while
// the writers continue in the new one. If the power fails in between, the old segment may
// have a torn tail although a newer one has frames: those say that it was not synced, and
// they are dropped with it. (Ending and syncing the old segment first would stall all
// writers for as long as a sync of what they just wrote.) A second rotation waits until the
// first is synced.
//
// # Recovery
//
// Recovery first reads everything and changes nothing ([Verify] is the same code). It does
// not trust the page cache: after a failed fsync and a restart, that shows what the disk
// does not have. So it rewrites, in place, the frames that no later one says were synced,
// at most those of the last two segments, and cuts off the remains of frames after them;
// both are synced. No byte of a frame changes, so a crash meanwhile loses nothing. Then the
// log continues in a new segment as after a rotation: the segment exists, durably, before
// the end frame is written to the last one, and that is synced too. If the crash left an
// end frame and a next segment without a start frame, the log continues in that segment.
//
// So recovery needs space for the start of a segment, 8 KiB. If there is none, the new
// segment is removed and the log is suspended: see Space. Once the end frame may have been
// written it is too late for that: recovery fails, and starts over at the next opening.
//
// After a log that was closed in order only its last frame is rewritten: the close frame is
// written after the sync of everything before it has succeeded, and the header is changed
// after the sync of the close frame has.
//
// Earlier versions copied the frames to a new segment, which named the lowest original;
// they synced the copy and its name, then removed the lowest original, durably, then the
// others. While that original exists the copy does not count; once it is gone, the other
// originals and older copies do not count. Such logs are read, and so is what a crash left
// in the middle of such a recovery.
//
// After a crash, numbers continue 2^30 further up; after an orderly close, without a gap.
// Numbers of records that the crash took may have been seen by readers. How many these are
// is unknown, but Append lets at most 2^30 numbers be unsynced.
//
// A log that recovery refuses can be read by [Salvage], which goes on after damage, and be
// written again with the same records and numbers by [Rebuild].
//
// # Assumptions
//
// A sector of 512 bytes is written wholly or not at all (Close changes the header in place,
// and a frame may begin in the sector that holds the end of the one before it), and what
// [vfs.FS] says about syncs.
package wal
