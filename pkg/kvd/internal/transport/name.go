package transport

import (
	"math/rand/v2"
	"sync/atomic"
)

// name is what the server knows a write by, so that one sent twice is applied
// once. All tries of a write bear the same. The zero name is none.
type name struct {
	client, sequence uint64
	// known is the newest version that the client had seen when it gave the name.
	// The write, if it happened, has a newer one; a server that does not remember
	// the name can tell from that whether it might have forgotten it.
	known uint64
}

var noName name

func (n name) given() bool { return n.sequence != 0 }

// names gives each write of a client a name of its own. Safe for concurrent use.
type names struct {
	client   uint64 // random, not zero
	sequence atomic.Uint64
	newest   atomic.Uint64 // version seen in any answer
}

func (n *names) init() {
	for n.client == 0 {
		n.client = rand.Uint64()
	}
}

func (n *names) next() name {
	return name{client: n.client, sequence: n.sequence.Add(1), known: n.newest.Load()}
}

// see notes a version that an answer had.
func (n *names) see(version uint64) {
	for {
		newest := n.newest.Load()
		if version <= newest || n.newest.CompareAndSwap(newest, version) {
			return
		}
	}
}
