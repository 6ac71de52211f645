package transport

import (
	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// class decides which operations may share a frame: those whose answers wait for the same
// things. The server sends an answer frame when its last result is ready, so a Get must not wait
// for an fsync, a buffered write for the fsync of another write, or a plain write for the lookups
// of conditions.
type class uint8

const (
	reading  class = iota
	together       // reads of one call, at one version
	writing        // the first of the writes: two classes for each durability
	classes  = writing + 2*class(kvdpb.Durability_DURABILITY_SYNC+1)
)

func classOf(op *frame.Op) class {
	if op.Kind == frame.Get {
		return reading
	}
	c := writing + 2*class(op.Durability)
	if op.Condition.Kind != 0 || op.ReturnPrevious {
		c++
	}
	return c
}

func (c class) kind() frame.FrameKind {
	if c < writing {
		return frame.ReadFrame
	}
	return frame.WriteFrame
}

func (c class) durability() kvdpb.Durability {
	if c < writing {
		return kvdpb.Durability_DURABILITY_UNSPECIFIED
	}
	return kvdpb.Durability((c - writing) / 2)
}

// waitsForDisk reports whether a frame is answered once its writes are synced. A server whose
// default durability is not Sync is the exception that this ignores.
func (c class) waitsForDisk() bool {
	d := c.durability()
	return c >= writing && (d == kvdpb.Durability_DURABILITY_SYNC || d == kvdpb.Durability_DURABILITY_UNSPECIFIED)
}

// gathers reports whether a small frame waits for the callers of the last one: see
// link.gathersLocked.
func (c class) gathers() bool { return c == reading || c.waitsForDisk() }

// lane has the unsent frames of one class on one connection. The connection's lock guards it.
type lane struct {
	open     *pendingFrame   // accepts operations; nil: none
	sealed   []*pendingFrame // in order, all before open
	inFlight int             // frames in flight
	// answered counts, for classes that gather, the completed frames with blocking callers
	// that have not resumed. Other callers do not count: before they resume they may wait
	// for an operation on a lane, which would be a deadlock.
	resuming int
}

// waiting reports whether there is a frame to send.
func (l *lane) waiting() bool { return l.open != nil || len(l.sealed) > 0 }

// seal closes the open frame to further operations.
func (l *lane) seal() {
	if l.open != nil {
		l.sealed = append(l.sealed, l.open)
		l.open = nil
	}
}

// next returns the frame to send next; there must be one.
func (l *lane) next() *pendingFrame {
	if len(l.sealed) > 0 {
		return l.sealed[0]
	}
	return l.open
}

// drop removes an unsent frame from the lane.
func (l *lane) drop(f *pendingFrame) {
	if l.open == f {
		l.open = nil
		return
	}
	for i := range l.sealed {
		if l.sealed[i] == f {
			l.sealed = append(l.sealed[:i], l.sealed[i+1:]...)
			return
		}
	}
}
