package wal

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
)

const (
	frameMagic        = 0x4d52_4657 // "WFRM"
	frameHeaderBytes  = 64
	recordHeaderBytes = 16
	frameAlign        = 8

	// maxRecordBytes bounds one record, and with it a frame: a frame is full as soon as it
	// holds fullFrameBytes. Derived: a partition puts at most two calls of the largest size into
	// one record, and they fit with their encoding.
	maxRecordBytes = 4 * kv.MaxBatchBytes
)

// FrameKind is the purpose of a frame. The numbers are part of the disk format.
type FrameKind uint32

const (
	// FrameData holds records: see logFrame.
	FrameData FrameKind = 1
	// FrameMark holds no records. It notes how far the log is synced, and which segment is
	// the lowest that must exist.
	FrameMark FrameKind = 2
	// FrameStart is the first frame of every segment in use.
	FrameStart FrameKind = 3
	// FrameEnd is the last frame of a segment that has a successor.
	FrameEnd FrameKind = 4
	// FrameClose is the last frame that an orderly Close wrote.
	FrameClose FrameKind = 5
	// FrameCopied follows the frames that recovery copied from another segment in earlier
	// versions. It is no longer written.
	FrameCopied FrameKind = 6
)

var frameKindNames = map[FrameKind]string{
	FrameData: "data", FrameMark: "mark", FrameStart: "start", FrameEnd: "end", FrameClose: "close", FrameCopied: "copied",
}

func (k FrameKind) String() string {
	if name, ok := frameKindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("frame(%d)", uint32(k))
}

// address is a place in the log. Segment numbers grow along the log, so
// addresses are ordered as pairs.
type address struct {
	segment uint64
	off     int64
}

func (a address) less(b address) bool {
	return a.segment < b.segment || a.segment == b.segment && a.off < b.off
}

// frame is a decoded frame.
type frame struct {
	off     int64
	kind    FrameKind
	records uint32
	prev    kv.SeqNum // last number of a record before this frame
	next    kv.SeqNum // number that follows this frame
	low     uint64    // lowest segment that must exist
	synced  address   // the log is synced up to here
	payload []byte    // borrowed
}

// bytes is the length of the frame on disk.
func (f *frame) bytes() int64 { return frameBytes(len(f.payload)) }

func frameBytes(payload int) int64 { return frameHeaderBytes + padded(int64(payload)) }

func padded(n int64) int64 { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// sealFrame completes a frame in place: buf holds room for the header, then the payload.
// It returns buf with the padding. f.off is the offset at which the frame will be
// written.
func sealFrame(buf []byte, id logfile.ID, f *frame) []byte {
	payload := len(buf) - frameHeaderBytes
	for len(buf)%frameAlign != 0 {
		buf = append(buf, 0)
	}
	h := buf[:frameHeaderBytes]
	le := binary.LittleEndian
	le.PutUint32(h[0:], frameMagic)
	le.PutUint32(h[8:], logfile.Sum(buf[frameHeaderBytes:]))
	le.PutUint32(h[12:], uint32(payload))
	le.PutUint32(h[16:], uint32(f.kind))
	le.PutUint32(h[20:], f.records)
	le.PutUint64(h[24:], uint64(f.prev))
	le.PutUint64(h[32:], uint64(f.next))
	le.PutUint64(h[40:], f.low)
	le.PutUint64(h[48:], f.synced.segment)
	le.PutUint64(h[56:], uint64(f.synced.off))
	le.PutUint32(h[4:], headerChecksum(h, id, f.off))
	return buf
}

// emptyFrame lays out a frame without records.
func emptyFrame(id logfile.ID, f frame) []byte {
	return sealFrame(make([]byte, frameHeaderBytes), id, &f)
}

// headerChecksum covers the segment, the offset and the header after the checksum field, which
// includes the checksum of the payload with its padding.
func headerChecksum(h []byte, id logfile.ID, off int64) uint32 {
	return id.Checksum(off, h[8:frameHeaderBytes])
}

// decodeFrameHeader decodes the header of the frame at off. It returns the length of the
// payload, or the reason why the bytes are no header.
func decodeFrameHeader(h []byte, id logfile.ID, off int64) (f frame, payload uint32, reason string) {
	le := binary.LittleEndian
	if le.Uint32(h) != frameMagic {
		return frame{}, 0, "no frame here"
	}
	if le.Uint32(h[4:]) != headerChecksum(h, id, off) {
		return frame{}, 0, "frame header fails its checksum"
	}
	f = frame{
		off:     off,
		kind:    FrameKind(le.Uint32(h[16:])),
		records: le.Uint32(h[20:]),
		prev:    kv.SeqNum(le.Uint64(h[24:])),
		next:    kv.SeqNum(le.Uint64(h[32:])),
		low:     le.Uint64(h[40:]),
		synced:  address{le.Uint64(h[48:]), int64(le.Uint64(h[56:]))},
	}
	return f, le.Uint32(h[12:]), ""
}

// check reports what is wrong with a frame whose checksums hold: a bug of its writer, not
// damage on the disk. An empty reason means that nothing is wrong.
func (f *frame) check() string {
	switch {
	case frameKindNames[f.kind] == "":
		return "frame of unknown kind"
	case f.kind != FrameData && (f.records != 0 || len(f.payload) != 0):
		return "frame that should be empty has records"
	case f.prev >= f.next || f.next > kv.MaxSeqNum+1:
		return "frame with impossible sequence numbers"
	case f.synced.off < 0:
		return "frame with an impossible synced offset"
	case f.kind == FrameData:
		return f.checkRecords()
	}
	return ""
}

func (f *frame) checkRecords() string {
	if f.records == 0 {
		return "data frame without records"
	}
	last := f.prev
	count := uint32(0)
	for rest := f.payload; len(rest) > 0; count++ {
		var r Record
		var ok bool
		if r, rest, ok = cutRecord(rest); !ok {
			return "record longer than its frame"
		}
		if r.Base <= last || r.Units == 0 || r.Last() > kv.MaxSeqNum {
			return fmt.Sprintf("record number %d does not follow %d", r.Base, last)
		}
		last = r.Last()
	}
	if count != f.records || f.next != last+1 {
		return "frame header disagrees with its records"
	}
	return ""
}

// Record is one record of the log.
type Record struct {
	Base    kv.SeqNum // number of its first unit
	Units   uint32    // it has the numbers Base to Base+Units-1
	Payload []byte    // borrowed
}

// Last returns the number of the last unit.
func (r Record) Last() kv.SeqNum { return r.Base + kv.SeqNum(r.Units) - 1 }

func appendRecord(b []byte, base kv.SeqNum, units uint32, payload []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, units)
	b = binary.LittleEndian.AppendUint64(b, uint64(base))
	return append(b, payload...)
}

// cutRecord decodes the first record of b and returns the bytes after it.
func cutRecord(b []byte) (r Record, rest []byte, ok bool) {
	if len(b) < recordHeaderBytes {
		return Record{}, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	base := binary.LittleEndian.Uint64(b[8:])
	if n > uint64(len(b)-recordHeaderBytes) || base > math.MaxInt64 {
		return Record{}, nil, false
	}
	end := recordHeaderBytes + int(n)
	r = Record{
		Base:    kv.SeqNum(base),
		Units:   binary.LittleEndian.Uint32(b[4:]),
		Payload: b[recordHeaderBytes:end:end],
	}
	return r, b[end:], true
}

// each calls fn for the records of a checked frame, in order.
func (f *frame) each(fn func(Record) error) error {
	for rest := f.payload; len(rest) > 0; {
		var r Record
		r, rest, _ = cutRecord(rest)
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}
