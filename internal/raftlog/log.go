package raftlog

import (
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Defaults of Options.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultCacheBytes   = 64 << 20
)

// Options configure a log.
type Options struct {
	FS      vfs.FS
	Dir     string // holds the segments; Open creates it for a fresh log
	StoreID uint64 // every checksum covers it

	// SegmentBytes is the length at which a segment ends; 0 means DefaultSegmentBytes. A
	// Write that is longer gets a segment of its own.
	SegmentBytes int64
	// CacheBytes bounds the entries kept in memory, by the bytes of their data, over all
	// groups; 0 means DefaultCacheBytes. The newest entry of a group stays.
	CacheBytes int64
	// Fresh says that the replica is being created, so that there may be no log yet. A log
	// without entries and votes, left by an attempt that was interrupted, is discarded.
	// Otherwise a missing log is damage.
	Fresh bool
}

// Log is an open log. It is for one goroutine: the loop that drives Raft. Any may call Stats.
type Log struct {
	opts   Options
	groups map[uint32]*Group
	order  []*Group // in the order of their numbers
	files  map[uint64]vfs.File
	failed error
	closed bool

	active   uint64 // number of the last segment
	off      int64  // end of the frames in it
	low      uint64 // lowest segment
	number   uint64 // of the next frame
	synced   address
	marked   address // end of the last mark: no further one is needed while the log ends here
	restated address // the last restatement of all groups begins here
	cached   int64   // bytes of data in the caches
	buf      []byte  // memory of the next write
	sizes    map[uint64]int64
	counters counters
}

// Update is what one Write changes in one group, in this order; a Write has one for each group at most. Nil and empty parts change
// nothing. The log keeps the entries, which must not be changed afterwards.
type Update struct {
	Group uint32
	// Snapshot is one that was installed: the log is empty after its index, and First
	// follows it. Its data is not kept.
	Snapshot  *pb.Snapshot
	HardState *pb.HardState
	// Entries are consecutive. The first is at most one above the last of the log, and replaces no
	// entry that is committed. Entries that were given up (see Compact) are left out.
	Entries []*pb.Entry
}

// Write appends the updates, with one write and, if sync, one sync. It returns when they are
// on the disk as asked, and visible through [Group].
//
// Errors: kv.ErrInvalidArgument for entries that do not follow, or that contradict the group; nothing has
// happened then. kv.ErrClosed. Any other error ends the log: it wraps kv.ErrFailed.
func (l *Log) Write(sync bool, updates ...Update) error {
	if err := l.usable(); err != nil {
		return err
	}
	began := time.Now()
	var frames []frame
	entries := 0
	for i := range updates {
		var err error
		if frames, err = l.layOut(frames, &updates[i]); err != nil {
			return err
		}
		entries += len(updates[i].Entries)
	}
	if err := l.makeRoom(frames); err != nil {
		return err
	}
	for i := range updates {
		if u := &updates[i]; u.Snapshot != nil {
			l.Group(u.Group).install(markOf(u.Snapshot)) // before its entries are placed
		}
	}
	if err := l.put(sync, frames); err != nil {
		return err
	}
	l.counters.writeEntries.Record(uint64(entries))
	if sync {
		l.counters.synced(time.Since(began))
	}
	for i := range updates {
		u := &updates[i]
		if u.HardState != nil {
			l.Group(u.Group).hard = u.HardState
		}
		l.Group(u.Group).cacheEntries(u.Entries)
	}
	l.trimCaches()
	return nil
}

// layOut checks an update and appends its frames.
func (l *Log) layOut(frames []frame, u *Update) ([]frame, error) {
	g := l.Group(u.Group)
	offset, last := g.offset, g.last()
	if u.Snapshot != nil {
		m := markOf(u.Snapshot)
		if g.mark.index != 0 && m.index <= g.mark.index {
			return nil, fmt.Errorf("%w: snapshot at index %d after one at %d", kv.ErrInvalidArgument, m.index, g.mark.index)
		}
		offset, last = m.index, m.index
		frames = append(frames, frame{kind: kindSnapshot, group: u.Group, payload: m.append(nil)})
	}
	if len(u.Entries) > 0 {
		first := u.Entries[0].GetIndex()
		if first == 0 || first > last+1 {
			return nil, fmt.Errorf("%w: entries from index %d on do not follow %d", kv.ErrInvalidArgument, first, last)
		}
		u.Entries = u.Entries[min(uint64(len(u.Entries)), offset+1-min(first, offset+1)):]
		if u.Snapshot == nil && max(first, offset+1) <= g.mark.index {
			return nil, fmt.Errorf("%w: entries from index %d on replace what is in a snapshot up to %d", kv.ErrInvalidArgument, first, g.mark.index)
		}
		if err := checkReplaced(u, g.hard, last); err != nil {
			return nil, err
		}
	}
	again := false // the hard state follows the first entry once more
	if h := u.HardState; h != nil {
		if len(u.Entries) > 0 && u.Entries[0].GetIndex() <= min(last, h.GetCommit()) {
			h, again = withCommit(h, u.Entries[0].GetIndex()-1), true
		}
		frames = append(frames, hardStateFrame(u.Group, h))
	}
	var payload []byte
	for i, e := range u.Entries {
		if e.GetIndex() != u.Entries[0].GetIndex()+uint64(i) || len(e.GetData()) > MaxEntryBytes {
			return nil, fmt.Errorf("%w: entry of index %d with %d bytes", kv.ErrInvalidArgument, e.GetIndex(), len(e.GetData()))
		}
		if payload == nil {
			payload = appendIndex(make([]byte, 0, 256), e.GetIndex())
		}
		payload = appendEntry(payload, e)
		if len(payload) >= fullFrameBytes || i == len(u.Entries)-1 || again {
			frames = append(frames, frame{kind: kindEntries, group: u.Group, payload: payload})
			payload = nil
		}
		if again {
			frames = append(frames, hardStateFrame(u.Group, u.HardState))
			again = false
		}
	}
	return frames, nil
}

func hardStateFrame(group uint32, h *pb.HardState) frame {
	return frame{kind: kindHardState, group: group, payload: appendHardState(nil, h)}
}

// checkReplaced checks that no entry which an update replaces is committed. hard and last are those
// of the log.
func checkReplaced(u *Update, hard *pb.HardState, last uint64) error {
	if len(u.Entries) == 0 || u.Entries[0].GetIndex() > min(last, hard.GetCommit()) {
		return nil
	}
	return fmt.Errorf("%w: entries from index %d on replace others that are committed: the commit index is %d",
		kv.ErrInvalidArgument, u.Entries[0].GetIndex(), hard.GetCommit())
}

// makeRoom begins a new segment if frames do not fit into the active one.
func (l *Log) makeRoom(frames []frame) error {
	total := int64(frameHeaderBytes) // of the end frame
	for i := range frames {
		total += frameBytes(len(frames[i].payload))
	}
	if l.off+total <= l.opts.SegmentBytes || !l.address().moreThan(l.restated, l.restatementBytes()) {
		return nil
	}
	if err := l.rotate(); err != nil {
		return l.fail(err)
	}
	return nil
}

// put writes frames at the end of the log, for which there is room, and syncs it if asked.
func (l *Log) put(sync bool, frames []frame) error {
	if err := l.write(frames); err != nil {
		return l.fail(err)
	}
	if sync && l.synced.less(l.address()) {
		return l.sync()
	}
	return nil
}

// address is the end of the log.
func (l *Log) address() address { return address{l.active, l.off} }

// append is put of one frame, after it has made room for it.
func (l *Log) append(sync bool, f frame) error {
	if err := l.makeRoom([]frame{f}); err != nil {
		return err
	}
	return l.put(sync, []frame{f})
}

// write appends frames to the active segment, and notes the places of entries.
func (l *Log) write(frames []frame) error {
	b := l.buf[:0]
	for i := range frames {
		f := &frames[i]
		f.off, f.number, f.low, f.synced = l.off+int64(len(b)), l.number+uint64(i), l.low, l.synced
		b = appendFrame(b, l.id(l.active), f)
	}
	if len(b) > 0 {
		if _, err := l.files[l.active].WriteAt(b, l.off); err != nil {
			return err
		}
	}
	l.off += int64(len(b))
	l.sized(l.active, l.off)
	l.counters.writeBytes.Record(uint64(len(b)))
	l.number += uint64(len(frames))
	for i := range frames {
		if f := &frames[i]; f.kind == kindEntries {
			l.Group(f.group).place(f.payload, address{l.active, f.off})
		}
	}
	if l.buf = b; cap(b) > 4*fullFrameBytes {
		l.buf = nil
	}
	return nil
}

func (l *Log) sync() error {
	if err := l.files[l.active].Sync(); err != nil {
		return l.fail(err)
	}
	l.synced = l.address()
	return nil
}

// rotate continues in a new segment. The old one is synced before anything is written to
// the new one.
func (l *Log) rotate() error {
	next, err := l.createSegment(l.active + 1)
	if err != nil {
		return err
	}
	l.files[l.active+1] = next
	if err := l.write([]frame{{kind: kindEnd}}); err != nil {
		return err
	}
	if err := l.files[l.active].Sync(); err != nil {
		return err
	}
	return l.begin(l.active + 1)
}

// begin makes a segment that has nothing but its header the active one.
func (l *Log) begin(num uint64) error {
	l.active, l.off = num, segmentHeaderBytes
	l.counters.active.Store(num)
	l.synced = address{num, segmentHeaderBytes}
	if err := l.write([]frame{{kind: kindStart}}); err != nil {
		return err
	}
	return l.restate()
}

// restate writes the state of every group but its entries, so that older segments hold
// nothing else that counts.
func (l *Log) restate() error {
	l.restated = address{l.active, l.off}
	return l.write(l.restatement())
}

func (l *Log) restatement() []frame {
	var frames []frame
	for _, g := range l.order {
		frames = append(frames,
			frame{kind: kindSnapshot, group: g.id, payload: g.mark.append(nil)},
			frame{kind: kindCompaction, group: g.id, payload: appendCompaction(nil, g.offset, g.offsetTerm)},
			frame{kind: kindHardState, group: g.id, payload: appendHardState(nil, g.hard)})
	}
	return frames
}

func (l *Log) restatementBytes() (n int64) {
	for _, f := range l.restatement() {
		n += frameBytes(len(f.payload))
	}
	return n
}

// Mark notes on the disk how far the log is synced, unless that is noted already. Its owner calls it when
// the log has been idle for a second. It does not sync.
func (l *Log) Mark() error {
	if err := l.usable(); err != nil {
		return err
	}
	if end := l.address(); l.marked == end || l.synced.less(end) {
		return nil // said already, or there is something newer to sync first
	}
	if err := l.append(false, frame{kind: kindMark}); err != nil {
		return err
	}
	l.marked = l.address()
	return nil
}

// MarkSnapshot notes that the state after the entry of that index is kept elsewhere, with
// the configuration that holds there. The next Write with sync makes that durable.
//
// Errors: kv.ErrInvalidArgument unless the log has the entry and the index is above that of
// the last mark; those of Write.
func (l *Log) MarkSnapshot(group uint32, index uint64, conf *pb.ConfState) error {
	if err := l.usable(); err != nil {
		return err
	}
	g := l.Group(group)
	term, err := g.Term(index)
	if err != nil || index <= g.mark.index {
		return fmt.Errorf("%w: no snapshot can be marked at index %d: the last is at %d, the log has %d to %d",
			kv.ErrInvalidArgument, index, g.mark.index, g.offset+1, g.last())
	}
	m := mark{index: index, term: term, conf: conf}
	if err := l.append(false, frame{kind: kindSnapshot, group: group, payload: m.append(nil)}); err != nil {
		return err
	}
	g.mark = m
	return nil
}

// Compact gives the entries up to index up. Reclaim then deletes the segments that hold
// nothing else.
//
// Errors: kv.ErrInvalidArgument unless the log has the entry; those of Write.
func (l *Log) Compact(group uint32, index uint64) error {
	if err := l.usable(); err != nil {
		return err
	}
	g := l.Group(group)
	term, err := g.Term(index)
	if err != nil || index <= g.offset {
		return fmt.Errorf("%w: the log cannot be compacted to index %d: it has %d to %d",
			kv.ErrInvalidArgument, index, g.offset+1, g.last())
	}
	if err := l.append(false, frame{kind: kindCompaction, group: group, payload: appendCompaction(nil, index, term)}); err != nil {
		return err
	}
	g.compact(index, term)
	return nil
}

// reclaimAtOnce segments are deleted by one Reclaim at most: a log that was kept for long may have
// a thousand that nothing keeps any more.
const reclaimAtOnce = 4

// lowest returns the lowest segment of which something counts.
func (l *Log) lowest() uint64 {
	low := l.restated.segment
	for _, g := range l.order {
		if len(g.ents) > 0 {
			low = min(low, g.ents[0].at.segment)
		}
	}
	return low
}

// Reclaimable reports whether Reclaim has something to delete.
func (l *Log) Reclaimable() bool { return l.usable() == nil && l.lowest() != l.low }

// Reclaim deletes segments of which nothing counts any more, the lowest ones and not all of them if
// they are many. It syncs the log first.
func (l *Log) Reclaim() error {
	if err := l.usable(); err != nil {
		return err
	}
	low := min(l.lowest(), l.low+reclaimAtOnce)
	if low == l.low {
		return nil
	}
	old := l.low
	l.low = low
	if err := l.append(true, frame{kind: kindMark}); err != nil {
		return err
	}
	for num := old; num < low; num++ {
		if err := l.remove(num); err != nil {
			return l.fail(err)
		}
	}
	return nil
}

func (l *Log) remove(num uint64) error {
	var err error
	if f := l.files[num]; f != nil {
		err = f.Close()
		delete(l.files, num)
	}
	l.sized(num, 0)
	return errors.Join(err, l.opts.FS.Remove(segmentName(l.opts.Dir, num)))
}

// Close syncs the log, notes that, and closes the files. Idempotent.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	var err error
	if l.failed == nil {
		err = l.end()
	}
	l.closed = true
	return errors.Join(err, l.closeFiles())
}

// end syncs the log and notes in the header of its last segment where it ends.
func (l *Log) end() error {
	if err := l.put(true, nil); err != nil {
		return err
	}
	h := segmentHeader{l.id(l.active), l.off}
	if _, err := l.files[l.active].WriteAt(h.encode(), 0); err != nil {
		return l.fail(err)
	}
	if err := l.files[l.active].Sync(); err != nil {
		return l.fail(err)
	}
	return nil
}

func (l *Log) closeFiles() error {
	var errs []error
	for num, f := range l.files {
		errs = append(errs, f.Close())
		delete(l.files, num)
	}
	return errors.Join(errs...)
}

// Err returns what ended the log, nil while it works.
func (l *Log) Err() error { return l.failed }

func (l *Log) usable() error {
	if l.failed == nil && l.closed {
		return kv.ErrClosed
	}
	return l.failed
}

// fail ends the log.
func (l *Log) fail(err error) error {
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: Raft log: %w; start the node again", kv.ErrFailed, err)
	}
	return l.failed
}
