package raftlog

import (
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/logfile"
)

const (
	frameMagic       = 0x4d52_4652 // "RFRM"
	frameHeaderBytes = 64
	frameAlign       = 8

	// fullFrameBytes closes a frame of entries: a longer one gains nothing, and reading one
	// entry from the disk reads its whole frame.
	fullFrameBytes = 1 << 20

	// MaxEntryBytes bounds the data of one entry. It is above the longest record of kvd.
	MaxEntryBytes = 1<<30 + 1<<10

	maxPayloadBytes = MaxEntryBytes + fullFrameBytes
)

// kind is the purpose of a frame. The numbers are part of the disk format.
type kind uint32

const (
	kindStart kind = iota + 1
	kindEnd
	kindMark
	kindHardState
	kindSnapshot
	kindCompaction
	kindEntries
)

var kindNames = map[kind]string{
	kindStart: "start", kindEnd: "end", kindMark: "mark", kindHardState: "hard state",
	kindSnapshot: "snapshot", kindCompaction: "compaction", kindEntries: "entries",
}

func (k kind) String() string {
	if name, ok := kindNames[k]; ok {
		return name
	}
	return fmt.Sprintf("frame(%d)", uint32(k))
}

// ofGroup reports whether frames of this kind belong to a group, and have a payload.
func (k kind) ofGroup() bool { return k >= kindHardState }

// address is a place in the log. Segment numbers grow along the log, so addresses are
// ordered as pairs.
type address struct {
	segment uint64
	off     int64
}

func (a address) less(b address) bool {
	return a.segment < b.segment || a.segment == b.segment && a.off < b.off
}

// moreThan reports whether a is in the segment of b and more than n bytes after it, or in
// another one.
func (a address) moreThan(b address, n int64) bool { return a.segment != b.segment || a.off > b.off+n }

// frame is a frame of the log.
type frame struct {
	off     int64
	kind    kind
	group   uint32
	number  uint64
	low     uint64
	synced  address
	payload []byte // borrowed
}

// end is the offset after the frame.
func (f *frame) end() int64 { return f.off + frameBytes(len(f.payload)) }

func frameBytes(payload int) int64 {
	return frameHeaderBytes + (int64(payload)+frameAlign-1)&^(frameAlign-1)
}

// appendFrame lays out f after b.
func appendFrame(b []byte, id logfile.ID, f *frame) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHeaderBytes)...)
	b = append(b, f.payload...)
	for (len(b)-at)%frameAlign != 0 {
		b = append(b, 0)
	}
	h := b[at : at+frameHeaderBytes]
	le := binary.LittleEndian
	le.PutUint32(h[0:], frameMagic)
	le.PutUint32(h[8:], logfile.Sum(b[at+frameHeaderBytes:]))
	le.PutUint32(h[12:], uint32(len(f.payload)))
	le.PutUint32(h[16:], uint32(f.kind))
	le.PutUint32(h[20:], f.group)
	le.PutUint64(h[24:], f.number)
	le.PutUint64(h[32:], f.low)
	le.PutUint64(h[40:], f.synced.segment)
	le.PutUint64(h[48:], uint64(f.synced.off))
	le.PutUint32(h[4:], headerChecksum(h, id, f.off))
	return b
}

func headerChecksum(h []byte, id logfile.ID, off int64) uint32 {
	return id.Checksum(off, h[8:frameHeaderBytes])
}

// decodeHeader decodes the header of the frame at off, whose payload it leaves nil. It
// returns the length and the checksum of the payload, or the reason why the bytes are no header.
func decodeHeader(h []byte, id logfile.ID, off int64) (f frame, payload int64, sum uint32, reason string) {
	le := binary.LittleEndian
	switch {
	case len(h) < frameHeaderBytes || le.Uint32(h) != frameMagic:
		return frame{}, 0, 0, "no frame here"
	case le.Uint32(h[4:]) != headerChecksum(h, id, off):
		return frame{}, 0, 0, "frame header fails its checksum"
	}
	f = frame{
		off:    off,
		kind:   kind(le.Uint32(h[16:])),
		group:  le.Uint32(h[20:]),
		number: le.Uint64(h[24:]),
		low:    le.Uint64(h[32:]),
		synced: address{le.Uint64(h[40:]), int64(le.Uint64(h[48:]))},
	}
	return f, int64(le.Uint32(h[12:])), le.Uint32(h[8:]), ""
}

// decodeFrame decodes the frame at the beginning of b, which is at off in its segment. The
// payload is borrowed from b. An empty reason means that the frame is whole.
func decodeFrame(b []byte, id logfile.ID, off int64) (f frame, reason string) {
	f, n, sum, reason := decodeHeader(b, id, off)
	if reason != "" {
		return frame{}, reason
	}
	whole := frameHeaderBytes + (n+frameAlign-1)&^(frameAlign-1)
	if n > maxPayloadBytes || whole > int64(len(b)) {
		return f, "frame longer than its segment"
	}
	if logfile.Sum(b[frameHeaderBytes:whole]) != sum {
		return f, "frame payload fails its checksum"
	}
	f.payload = b[frameHeaderBytes : frameHeaderBytes+n : frameHeaderBytes+n]
	return f, ""
}
