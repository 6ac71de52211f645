package transport

import (
	"math/rand/v2"
	"sync/atomic"
)

// requestID identifies a write to the server, so that a write which is sent twice is applied
// once. All attempts at a write have the same one. The zero requestID is none.
type requestID struct {
	client, sequence uint64
	// known is the newest version that the client had seen when it made the id. The version of
	// the write, if it is applied, is newer. A server that does not remember the id can tell
	// from known whether it may have forgotten it.
	known uint64
}

var noRequestID requestID

func (id requestID) given() bool { return id.sequence != 0 }

// requestIDs makes the request ids of a client. Safe for concurrent use.
type requestIDs struct {
	client   uint64 // random, not zero
	sequence atomic.Uint64
	newest   atomic.Uint64 // version seen in any answer
}

func (ids *requestIDs) init() {
	for ids.client == 0 {
		ids.client = rand.Uint64()
	}
}

func (ids *requestIDs) next() requestID {
	return requestID{client: ids.client, sequence: ids.sequence.Add(1), known: ids.newest.Load()}
}

// observe records a version that an answer had.
func (ids *requestIDs) observe(version uint64) {
	for {
		newest := ids.newest.Load()
		if version <= newest || ids.newest.CompareAndSwap(newest, version) {
			return
		}
	}
}
