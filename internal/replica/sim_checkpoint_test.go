package replica

import (
	"fmt"
	"strconv"
)

// transfer is a checkpoint on its way to a node of the simulation.
type transfer struct {
	from  *simNode
	at    Position
	token string
}

var _ Checkpoints = (*simNode)(nil)

// Offer implements Checkpoints: what is durable is the checkpoint.
func (n *simNode) Offer(good func(Position) bool) (Position, []byte, bool) {
	if n.serves == nil || !good(n.serves.at) {
		m := n.durable
		if n.serves = &m; n.w.chance(30) || !good(m.at) { // it is not ready at once, or must be newer
			n.durable = *n.machine
			return Position{}, nil, false
		}
	}
	n.w.counts.Offers++
	return n.serves.at, fmt.Append(nil, n.serves.at.Index), true
}

// Sending implements Checkpoints.
func (n *simNode) Sending(id uint64) bool {
	t := n.w.nodes[id-1].fetches
	return t != nil && t.from == n
}

// Fetch implements Checkpoints.
func (n *simNode) Fetch(from uint64, at Position, token []byte) {
	if n.fetches == nil {
		n.w.note("node %d fetches a checkpoint at index %d of node %d", n.id, at.Index, from)
		n.fetches = &transfer{n.w.nodes[from-1], at, string(token)}
	}
}

// transfer ends what a node fetches: it has all of it, or the connection was cut.
func (n *simNode) transfer() {
	t, w := n.fetches, n.w
	if t == nil || !w.calm && w.chance(60) {
		return
	}
	n.fetches = nil
	index, _ := strconv.ParseUint(t.token, 10, 64)
	if t.from.core == nil || t.from.serves == nil || t.from.serves.at.Index != index || !w.calm && w.chance(20) {
		w.counts.CutTransfers++
		if t.from.core != nil && w.chance(50) {
			t.from.core.Sent(n.id, false)
			t.from.dirty = true
		}
		return
	}
	w.counts.Fetched++
	m := *t.from.serves
	m.node = n
	n.staged = &m
	if w.chance(80) { // otherwise the end of it is not noticed
		t.from.core.Sent(n.id, true)
		t.from.dirty = true
	}
	if !n.core.Install(t.at) && n.core.Err() == nil { // it has the entries
		n.staged = nil
	}
	if n.dirty = true; n.core.Err() != nil {
		n.process()
	}
}
