package kvd

import (
	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// class says which operations may share a frame: those whose answers wait for the
// same things. An answer frame leaves the server when its last result is there,
// so a Get must not wait for an fsync, nor a buffered write for that of another
// one, nor a plain write for the lookups that conditions need.
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

// waitsForDisk reports whether a frame is answered once its writes are synced. What
// the server chooses for writes that leave it to the server is usually that.
func (c class) waitsForDisk() bool {
	d := c.durability()
	return c >= writing && (d == kvdpb.Durability_DURABILITY_SYNC || d == kvdpb.Durability_DURABILITY_UNSPECIFIED)
}

// gathers reports whether a small frame waits for the callers of the last one: see
// link.gathersLocked.
func (c class) gathers() bool { return c == reading || c.waitsForDisk() }

// lane has the flights of one class on one connection that have not left. It is
// guarded by the connection's lock.
type lane struct {
	open   *flight   // takes further operations; nil: none
	sealed []*flight // in their order, all before open
	flying int       // frames under way
	// answered counts, where frames gather, the flights that are over and have callers
	// who have yet to look. Those alone count who wait for nothing else: others
	// may want something that waits on a lane before they look.
	answered int
}

// waiting reports whether there is something to send.
func (l *lane) waiting() bool { return l.open != nil || len(l.sealed) > 0 }

// seal lets nobody else board the open flight.
func (l *lane) seal() {
	if l.open != nil {
		l.sealed = append(l.sealed, l.open)
		l.open = nil
	}
}

// next is the flight that leaves next; there is one.
func (l *lane) next() *flight {
	if len(l.sealed) > 0 {
		return l.sealed[0]
	}
	return l.open
}

// drop takes a flight that is not under way off the lane.
func (l *lane) drop(f *flight) {
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
