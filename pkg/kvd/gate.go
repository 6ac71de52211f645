package kvd

import (
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/stripe"
)

// gate counts the calls in flight so that Close can wait for them. The count is striped: one
// counter for all goroutines costs more than a read from memory once two processors share it.
type gate struct {
	stripes [1 << gateBits]gateStripe
}

const gateBits = 4

// gateStripe counts the calls that entered at it. Closing adds gateClosed, so entering costs
// one atomic add.
type gateStripe struct {
	count atomic.Int64
	// empty has room for one element, which the last call to leave a closed stripe sends. Calls that
	// enter a closed stripe leave it at once, so that may happen several times.
	empty chan struct{}
	_     [stripe.Bytes - 16]byte
}

const gateClosed = 1 << 62

func (g *gate) init() {
	for i := range g.stripes {
		g.stripes[i].empty = make(chan struct{}, 1)
	}
}

// enter returns nil if the gate is closed; otherwise the caller must call leave of the stripe.
func (g *gate) enter() *gateStripe {
	s := &g.stripes[stripe.Index(gateBits)]
	if s.count.Add(1) < gateClosed {
		return s
	}
	s.leave()
	return nil
}

func (s *gateStripe) leave() {
	if s.count.Add(-1) == gateClosed {
		s.emptied()
	}
}

func (s *gateStripe) emptied() {
	select {
	case s.empty <- struct{}{}:
	default:
	}
}

// close closes the gate and waits until every call has left. It is called once.
func (g *gate) close() {
	for i := range g.stripes {
		g.stripes[i].count.Add(gateClosed)
	}
	for i := range g.stripes {
		for s := &g.stripes[i]; s.count.Load() != gateClosed; {
			<-s.empty
		}
	}
}
