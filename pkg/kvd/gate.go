package kvd

import (
	"sync"
	"sync/atomic"
)

// gate counts the calls in flight and lets Close wait for them. A closed gate
// has a large number added to its count, so that passing costs one atomic add.
type gate struct {
	count atomic.Int64
	empty chan struct{}
	// once closes empty: latecomers, who enter a closed gate only to leave it, may
	// bring the count down to the mark several times.
	once sync.Once
}

const gateClosed = 1 << 62

func (g *gate) init() { g.empty = make(chan struct{}) }

// enter returns false if the gate is closed; otherwise leave must follow.
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

// close is called once. It returns when everybody has left.
func (g *gate) close() {
	if g.count.Add(gateClosed) != gateClosed {
		<-g.empty
	}
}
