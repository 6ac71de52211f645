package commit

import "sync/atomic"

// RequestWindow is what the coordinators of a store have in common of the request ids that they
// remember: see requestIDs. It outlives them: the coordinators of the next tenure have the same one.
// Safe for concurrent use.
//
//	N1. The id of a write is known while it is one of the newest so many of the store, for as long
//	    as the coordinators hold no more than twice as many (most).
type RequestWindow struct {
	size  uint64
	given atomic.Uint64 // the place of the newest id: ids are counted, in the order in which they come
	held  atomic.Int64  // ids
}

// NewRequestWindow returns a window of so many ids, at least one.
func NewRequestWindow(size int) *RequestWindow { return &RequestWindow{size: uint64(size)} }

// most is how many ids the coordinators hold together, but for the newest of each. They hold as many as
// the window has, unless writes have begun to go to other partitions, and those to which they went
// before have not been trimmed since: see Coordinator.TrimRequestIDs.
func (w *RequestWindow) most() int64 { return 2*int64(w.size) + 1024 }

// left reports whether an id has left the window, as of the time when the newest one had a place.
func (w *RequestWindow) left(id *placedID, newest uint64) bool { return id.place+w.size <= newest }
