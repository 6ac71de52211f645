package wal

import (
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

const (
	// fullFrameBytes closes a frame: a larger write gains nothing, and the buffer is reused
	// for other frames.
	fullFrameBytes = 1 << 20
	// maxQueuedBytes is how much may be queued before Flush waits.
	maxQueuedBytes = 32 << 20
	// maxSpareFrames bounds the memory that an idle queue keeps.
	maxSpareFrames = 4
)

// logFrame is the records that one write adds to the log: a data frame whose header is
// filled in last.
type logFrame struct {
	buf     []byte // room for the header, then the records
	records uint32
	units   uint32 // of the records
	asked   uint32 // of these, of records that ask for a sync
	last    kv.SeqNum
	end     Pos
	charged int64   // to Log.mu.space, for its records
	urgent  bool    // a caller waits for the write, not for the sync
	early   []Waker // to wake after the write
	late    []Waker // to wake after the sync
	timed   []timed // its records that have a trace
}

// timed is a record whose trace receives the times of its write and, if it asked for one,
// of its sync.
type timed struct {
	trace *trace.Batch
	sync  bool
	held  bool
}

// queue holds the frames to be written, oldest first; records are added to the last one.
// Guarded by Log.mu.
type queue struct {
	frames []*logFrame
	bytes  int // of all frames
	spare  []*logFrame
}

func (q *queue) empty() bool { return len(q.frames) == 0 }

// urgent reports whether a caller waits for the write of any frame.
func (q *queue) urgent() bool {
	for _, f := range q.frames {
		if f.urgent {
			return true
		}
	}
	return false
}

// add copies a record to the last frame, or to a new one if that is full.
func (q *queue) add(base kv.SeqNum, units uint32, payload []byte, end Pos) *logFrame {
	if n := len(q.frames); n == 0 || len(q.frames[n-1].buf) >= fullFrameBytes {
		q.frames = append(q.frames, q.newFrame())
	}
	f := q.frames[len(q.frames)-1]
	f.buf = appendRecord(f.buf, base, units, payload)
	f.records++
	f.units += units
	f.last = base + kv.SeqNum(units) - 1
	f.end = end
	q.bytes += recordHeaderBytes + len(payload)
	return f
}

func (q *queue) newFrame() *logFrame {
	if n := len(q.spare); n > 0 {
		f := q.spare[n-1]
		q.spare[n-1] = nil // so that a frame too large to be kept can be freed
		q.spare = q.spare[:n-1]
		return f
	}
	return &logFrame{buf: make([]byte, frameHeaderBytes)}
}

// hold notes in the traces that the records wait for a running sync.
func (q *queue) hold() {
	for _, f := range q.frames {
		for i := range f.timed {
			if r := &f.timed[i]; !r.held {
				r.held = true
				r.trace.Held.Set(time.Now())
			}
		}
	}
}

// release notes in the traces of held records that they are about to be written.
func (f *logFrame) release() {
	if len(f.timed) == 0 {
		return
	}
	now := time.Now()
	for _, r := range f.timed {
		if r.held {
			r.trace.Released.Set(now)
		}
	}
}

// take removes the oldest frame and returns it; nil if there is none.
func (q *queue) take() *logFrame {
	if q.empty() {
		return nil
	}
	f := q.frames[0]
	q.bytes -= len(f.buf) - frameHeaderBytes
	q.frames = slices.Delete(q.frames, 0, 1)
	return f
}

// recycle keeps the memory of a frame that take returned for new frames.
func (q *queue) recycle(f *logFrame) {
	if len(q.spare) == maxSpareFrames || cap(f.buf) > 2*fullFrameBytes {
		return
	}
	clear(f.early)
	clear(f.late)
	clear(f.timed)
	*f = logFrame{buf: f.buf[:frameHeaderBytes], early: f.early[:0], late: f.late[:0], timed: f.timed[:0]}
	q.spare = append(q.spare, f)
}

// drain empties the queue and returns the wakers of its frames.
func (q *queue) drain() (wakers [][]Waker) {
	for _, f := range q.frames {
		wakers = append(wakers, f.early, f.late)
	}
	q.frames, q.bytes = nil, 0
	return wakers
}
