package transport

import (
	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// batchKey decides which operations may share a frame: those with the same key, because their
// answers wait for the same things. The server answers a frame when its last result is ready. So a
// Get does not share a frame with a write that waits for an fsync, nor a buffered write with a
// synced one, nor a plain write with a write whose condition needs a lookup.
type batchKey uint8

const (
	reading   batchKey = iota
	together           // reads of one call, at one version
	leasing            // calls about snapshots
	writing            // the first of the writes: writeKinds batch keys for each durability
	batchKeys = writing + writeKinds*batchKey(kvdpb.Durability_DURABILITY_SYNC+1)
)

// The kinds of writes, of each durability.
const (
	writePlain batchKey = iota
	writeLooks          // it needs a lookup
	writeCall           // a call that writes
	writeKinds
)

func batchKeyOf(op *frame.Op) batchKey {
	k := writing + writeKinds*batchKey(op.Durability)
	switch {
	case op.Kind == frame.Get:
		return reading
	case op.Kind == frame.Call && op.Method >= frame.MethodBeginSnapshot:
		return leasing
	case op.Kind == frame.Call:
		return k + writeCall
	case op.Condition.Kind != 0 || op.ReturnPrevious:
		return k + writeLooks
	}
	return k + writePlain
}

func (k batchKey) kind() frame.FrameKind {
	switch {
	case k.calls():
		return frame.CallFrame
	case k < writing:
		return frame.ReadFrame
	}
	return frame.WriteFrame
}

// calls reports whether the operations are calls, which the server answers each by itself.
func (k batchKey) calls() bool {
	return k == leasing || k >= writing && (k-writing)%writeKinds == writeCall
}

func (k batchKey) durability() kvdpb.Durability {
	if k < writing {
		return kvdpb.Durability_DURABILITY_UNSPECIFIED
	}
	return kvdpb.Durability((k - writing) / writeKinds)
}

// waitsForDisk reports whether a frame is answered after its writes are synced. It assumes that the
// server's default durability is Sync.
func (k batchKey) waitsForDisk() bool {
	d := k.durability()
	return k >= writing && (d == kvdpb.Durability_DURABILITY_SYNC || d == kvdpb.Durability_DURABILITY_UNSPECIFIED)
}

// coalesces reports whether a small frame waits for the callers of the previous one: see
// frameConn.shouldCoalesceLocked. Calls do not: see callWindow.
func (k batchKey) coalesces() bool { return k == reading || k.waitsForDisk() && !k.calls() }

// sendQueue has the unsent frames of one batch key on one connection. It is guarded by conn.mu.
type sendQueue struct {
	open     *pendingFrame   // accepts operations; nil: none
	sealed   []*pendingFrame // in order, all before open
	inFlight int             // frames in flight
	// resuming counts, for batch keys that coalesce, the frames that have ended and have blocking
	// callers that have not resumed. Only blocking callers count: the caller of several
	// operations may wait for another one before it resumes, which would be a deadlock.
	resuming int
}

// waiting reports whether there is a frame to send.
func (q *sendQueue) waiting() bool { return q.open != nil || len(q.sealed) > 0 }

// seal closes the open frame to further operations.
func (q *sendQueue) seal() {
	if q.open != nil {
		q.sealed = append(q.sealed, q.open)
		q.open = nil
	}
}

// next returns the frame to send next; there must be one.
func (q *sendQueue) next() *pendingFrame {
	if len(q.sealed) > 0 {
		return q.sealed[0]
	}
	return q.open
}

// drop removes an unsent frame from the queue.
func (q *sendQueue) drop(f *pendingFrame) {
	if q.open == f {
		q.open = nil
		return
	}
	for i := range q.sealed {
		if q.sealed[i] == f {
			q.sealed = append(q.sealed[:i], q.sealed[i+1:]...)
			return
		}
	}
}
