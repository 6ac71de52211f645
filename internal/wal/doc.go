// Package wal is the node's one commit log: numbered segment files in one
// directory, to which all partitions append. In other texts: write-ahead log,
// redo log, journal.
//
// It knows records (opaque bytes that take some sequence numbers), segments and
// durability. It does not know keys or partitions, nor when a record is no longer
// needed: the engine tells it, by [Log.Reclaim].
//
// W1. A record that was acknowledged as synced is replayed after any crash, until
// it is given back.
// W2. What is replayed is a prefix of what was appended, each record once. (What
// was given back is missing at the front.)
// W3. No sequence number is given out twice, also not one whose record a crash
// took.
// W4. A torn tail is dropped and reported; damage of what was synced refuses to
// open, with the file and the offset. Which of the two it is, the frames behind
// say.
// W5. After a failed write or sync nothing is acknowledged any more, and no
// second sync is tried.
//
// # The way of a record
//
// [Log.Append] copies it to the open group, in memory, and gives it its numbers.
// [Log.Flush] writes the group as one frame; of several callers one leads and
// writes for the others, without a change of goroutine. Records of all
// durabilities share a frame. Syncing has a goroutine of its own: while it runs,
// buffered records are written and acknowledged, and records that wait for a sync
// gather; they are then written as one frame, and one sync serves them all. A
// lone writer waits for one write and one fdatasync.
//
// A caller that waits for one of the records calls [Log.FlushOrSync] instead: it writes
// on its own goroutine, and syncs there too if no other goroutine writes or syncs and
// syncs have been quick lately. The goroutine that synced then applies what that has made
// durable, if nothing else waits for a sync ([Waker]). So a frame of synced writes that a
// server has read wakes no goroutine until its answer is sent: 0.91 of the processor time
// for a put (bench/NOTES.md). The price: of a disk that was quick and begins to hang, one
// caller at a time cannot give up before its write or sync returns.
//
// With W writers that each wait for their sync, a sync that began as soon as the one
// before it was done would serve W/2 of them: see gathering, which waits for those
// just served for as long as syncs take, where they come back. Measured with the
// engine's puts of 128 bytes in pairs, on 2 cores and a disk whose syncs took 0.3 to
// 1.7 ms: a sync served 7.8 puts of 16 writers and now 14, with 64 writers 31 and 50,
// with 256, which often need more time than a sync, 118 and 145; there were some 1.3,
// 1.2 and 1.1 times as many puts a second, at 0.76, 0.85 and 0.8 of the processor
// time. Waiting for half as long failed too often with 64 writers: 42 puts a sync.
// Waiting by yields of the processor instead of on a channel keeps it from taking over
// the work of the other one: 16 writers came back too late.
//
// Syncs do not overlap. Tried: two at a time, each with a descriptor of its own.
// The disk takes writes and flushes one after the other: with 16, 64 and 256 writers
// of 128 bytes a sync took 1.1 to 1.4 times as long and served 0.6 times as many
// puts, and there were 0.74 to 0.79 times as many puts a second.
//
// Every frame is written by a write call. Tried and removed: copying small frames into a
// part of the segment that is mapped into memory. It took 0.78 of the processor time of
// a buffered put of 1 KiB, but on a file system that stalls (fsfreeze, a snapshot of the
// volume) the copy blocked in a page fault, which held up the whole process: see
// package vfs. What saves about as much is to extend the segment by 64 KiB of zeros at a
// time and to overwrite these (PUT_HEAVY as above: 0.79 of the processor time of an
// operation, DELETE_HEAVY 0.84). A sync in the middle writes all of the zeros, so a log that
// is synced often, or seldom written to, is not extended. Tried too: a caller that yields
// once more before it writes, for others to add their records. It halved the number of
// writes, but cost what it saved.
//
// Segments are filled with zeros, and synced, before they are used, as soon as
// anybody asks for syncs: fdatasync need then not record a new length, which
// doubles what the log can do (measured: 4,300 instead of 3,000 syncs a second
// for one writer). It also doubles the bytes written, so a log that nobody syncs
// does without. The first segments have 1, 2, 4 ... MiB of zeros, so that a log that
// was just opened soon has some, and a short one does not have many.
//
// # Space
//
// A write of the log must not meet a full disk, for a failed write ends the log. So
// [Log.Append] admits a record only if it surely fits into the space that the active
// segment has on the disk (zeros, or a reservation by fallocate), after the records
// admitted before it; 4 KiB stay for marks and for the frames that end a segment. A
// goroutine reserves ahead: as much as was appended since the log was last idle, at
// least 1 MiB and at most half a segment. Append waits for no disk: if the reservation
// has not caught up it returns [ErrNoRoomYet], and its caller comes back when
// [Log.OnRoom] or [Log.AwaitRoom] says so. If there is no space, Append refuses what
// does not fit, and [Options.NoSpace] is told, before the last of the space is used.
// This costs one fallocate per 7 MB of 1 KiB puts, and no processor time above the
// noise: 0.93 of that without, medians of 5 pairs on 2 busy cores (0.92 to 1.06), for
// synced puts of 128 bytes by 16 writers, 0.96 (0.79 to 1.11) for buffered ones of 1 KiB.
//
// A rotation makes room in the next segment for all that is admitted, and between
// that and the switch Append admits what fits into both. If there is no space for a
// next segment, the log goes on in the active one beyond its length.
//
// Space that is not needed goes back: when the log leaves a segment, when it is idle
// ([Log.Shrink]: a large segment without unflushed records is left for a small one, else
// what is reserved is cut) and on a full disk ([Log.Release], which needs no space
// itself and keeps room for some hundred deletes).
//
// A log whose recovery cannot write is suspended: it was read and replayed, but nothing is
// appended, its files hold the records that they held, and WaitSynced fails, since a power cut
// could still take what it could before. [Log.Resume] tries the writing part again.
//
// # Files
//
// A segment is called 000042.wal; numbers only grow. It holds a header and then
// frames, one behind the other, each at a multiple of 8. Numbers are
// little-endian, checksums are CRC-32C. Behind the last frame there are zeros, or
// the end of the file. No valid header or frame begins with zeros.
//
//	segment header, 64 bytes
//	 0  8  magic "kvd.wal\n"
//	 8  4  format version: 2; 1 is read too, and differs in the payload of records alone
//	12  4  checksum of bytes 0-11 and 16-63
//	16  8  store id
//	24  8  number of this segment
//	32  8  number of the segment before; 0: none
//	40  8  lowest of the segments that this one is a copy of; 0: it is none, as all are now
//	48  8  where the log ended when it was closed in order; 0: it was not
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
//	64     payload: records, one behind the other
//	       padding: zeros up to a multiple of 8
//
//	record
//	 0  4  length of the payload
//	 4  4  units: how many sequence numbers it takes
//	 8  8  the first of them
//	16     payload
//
// Only data frames have records. Every segment in use begins with a start frame.
// A mark notes how far the log is synced (when it is idle) or that segments were
// given back. An end frame is the last one of a segment that has a successor, a
// close frame that of a log closed in order; an end frame follows it when the log
// is opened again. A copied frame ends the copy that recovery made in earlier
// versions.
//
// Golden files of each version are in testdata.
//
// # Why what is missing is noticed
//
// A frame names the last number before it, so none can be missing between two.
// Its checksum covers the place where it lies, so none can be elsewhere. A header
// names the segment before; an end frame says that there is one behind; each
// frame names the lowest segment that must exist. What remains is the upper end.
//
// Every frame says how far the log was synced before it was written, so a frame
// that cannot be read, while a later one says it was synced, is damage. If no
// later one says so, it was the last group: torn, and never acknowledged, or
// acknowledged and then damaged. To shrink that window, an idle log adds a mark
// after [Options.IdleMark], and an orderly Close writes into the header where the
// log ended.
//
// # Rotation
//
// The next segment exists, durably, before an end frame is written to the old
// one. The end of the old segment is synced by the syncing goroutine, before
// anything in the new one, while the writers go on in the new one. If the power
// fails in between, the old segment may have a torn tail although a newer one has
// frames: those say that it was not synced, and they are dropped with it. (Ending
// and syncing the old segment first would stall all writers for as long as a sync
// of what they just wrote.) A second rotation waits until the first is synced.
//
// # Recovery
//
// It first reads everything and changes nothing ([Verify] is the same code). Then
// it does not trust the page cache: after a failed fsync and a restart, that shows
// what the disk does not have. Frames that no later one says were synced are written
// once more where they lie, at most those of the last two segments, and remains of
// frames behind them are cut off; both are synced. No byte of a frame changes, so a
// crash meanwhile loses nothing. Then the log goes on in a new segment as after a
// rotation: the segment is there, durably, before the end frame is written to the last
// one, and that is synced too. If the crash had left an end frame without anything in the
// segment behind it, the log goes on there.
//
// So recovery needs space for the start of a segment, 8 KiB. If there is none, the new
// segment is removed and the log is suspended: see Space. Once the end frame may be
// written it is too late for that, and recovery fails, to begin anew at the next opening.
//
// After a log that was closed in order only its last frame is written again: the close
// frame is written after the sync of everything before it has succeeded, and the header
// is changed after the sync of the close frame has.
//
// Earlier versions copied the frames to a new segment, which named the lowest original;
// the copy and its name were synced, then the lowest original was removed, durably, then
// the others. While that original exists the copy does not count; once it is gone, the
// other originals and older copies do not count. Such logs are read, and recovered from
// what a crash left in the middle of that.
//
// Numbers go on 2^30 further up after a crash, and without a gap after an orderly
// close. Numbers that were given to records that the crash took may have been
// seen; how many there were nobody knows, and Append sees to it that there are no
// more than these.
//
// # What it relies on
//
// A sector of 512 bytes is written wholly or not at all (the header is changed in place
// when the log is closed, and each frame begins in a sector that holds the end of the one
// before it), and what [vfs.FS] says about syncs.
package wal
