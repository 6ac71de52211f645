package kvd

import (
	"sync"
	"sync/atomic"
)

// gate counts the calls in flight so that Close can wait for them. Closing adds gateClosed to
// the count, so entering costs one atomic add.
type gate struct {
	count atomic.Int64
	empty chan struct{}
	// once closes empty. Calls that enter a closed gate leave it at once, so the count may
	// reach gateClosed several times.
	once sync.Once
}

const gateClosed = 1 << 62

func (g *gate) init() { g.empty = make(chan struct{}) }

// enter returns false if the gate is closed; otherwise the caller must call leave.
func (g *gate) enter() bool {
	if g.count.Add(1) < gateClosed {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.count.Add(-1) == gateClosed {
		g.once.Do(func() { close(g.empty) })
	}
}

// close closes the gate and waits until every call has left. It is called once.
func (g *gate) close() {
	if g.count.Add(gateClosed) != gateClosed {
		<-g.empty
	}
}
