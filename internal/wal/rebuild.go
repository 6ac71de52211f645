package wal

import (
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Rebuild writes a log of one segment that holds given records with the numbers that they
// have. Recovery reads it as after a crash directly after the last of them: it skips numbers,
// so that none which the old log gave out, and whose record is lost, is given out again.
//
// Used by one goroutine. After an error, and before Finish, the directory holds no log.
type Rebuild struct {
	fsys    vfs.FS
	dir     string
	seg     *segment // nil before the first record
	store   uint64
	last    kv.SeqNum
	buf     []byte
	records uint32
	prev    kv.SeqNum // last number before buf
}

// rebuiltSegment is the number of the only segment.
const rebuiltSegment = 1

// NewRebuild returns a Rebuild into a directory that exists and has no segments.
func NewRebuild(fsys vfs.FS, dir string, storeID uint64) *Rebuild {
	return &Rebuild{fsys: fsys, dir: dir, store: storeID, buf: make([]byte, frameHeaderBytes)}
}

// Add appends a record, whose number is above that of the one before. It copies the payload.
func (b *Rebuild) Add(r Record) error {
	if err := b.begin(r.Base); err != nil {
		return err
	}
	b.buf = appendRecord(b.buf, r.Base, r.Units, r.Payload)
	b.records++
	b.last = r.Last()
	if len(b.buf) >= fullFrameBytes {
		return b.flush()
	}
	return nil
}

// begin creates the segment, whose first record has number first or a higher one.
func (b *Rebuild) begin(first kv.SeqNum) (err error) {
	if b.seg != nil {
		return nil
	}
	b.seg, err = createSegment(b.fsys, b.dir, segmentHeader{store: b.store, num: rebuiltSegment})
	if err != nil {
		return err
	}
	b.prev, b.last = first-1, first-1
	return b.empty(FrameStart, first)
}

func (b *Rebuild) empty(kind FrameKind, next kv.SeqNum) error {
	return b.seg.append(emptyFrame(b.seg.header.id(), frame{off: b.seg.off, kind: kind, prev: b.last, next: next, low: rebuiltSegment}))
}

// flush writes the frame.
func (b *Rebuild) flush() error {
	if b.records == 0 {
		return nil
	}
	f := frame{off: b.seg.off, kind: FrameData, records: b.records, prev: b.prev, next: b.last + 1, low: rebuiltSegment}
	sealed := sealFrame(b.buf, b.seg.header.id(), &f)
	err := b.seg.append(sealed)
	b.buf, b.records, b.prev = sealed[:frameHeaderBytes], 0, b.last
	return err
}

// Finish makes the log durable. Recovery will give out no number below next.
func (b *Rebuild) Finish(next kv.SeqNum) (err error) {
	if err := b.begin(max(next, 1)); err != nil {
		return errors.Join(err, b.Abort())
	}
	defer func() { err = errors.Join(err, b.Abort()) }()
	if err := b.flush(); err != nil {
		return err
	}
	if next > b.last+1 {
		if err := b.empty(FrameMark, next); err != nil {
			return err
		}
	}
	b.seg.header.closed = b.seg.off // so no part of it can be lost unnoticed
	if _, err := b.seg.file.WriteAt(b.seg.header.encode(), 0); err != nil {
		return err
	}
	if err := b.seg.file.Sync(); err != nil {
		return err
	}
	return b.fsys.SyncDir(b.dir)
}

// Abort closes the file. Idempotent; Finish does it too.
func (b *Rebuild) Abort() error {
	if b.seg == nil {
		return nil
	}
	return b.seg.file.Close()
}
