package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"

	"github.com/kvd-db/kvd/internal/histogram"
)

// readRetryTicks after it was asked for, a round without an answer is asked for again: a
// message of it may be lost. A leader that was not the leader then is asked at once.
const readRetryTicks = 2

// reads holds the reads without an answer.
type reads struct {
	waiting []uint64 // for the next round
	counter uint64   // of the last context

	round []uint64 // the reads of the round under way; none if empty
	first uint64   // counter of its first context
	asked uint64   // when it was last asked for, in ticks

	leader, term uint64 // what this node knew of the leader then

	confirmed []confirmedRound
	rounds    histogram.Powers // confirmed, by their reads
}

// confirmedRound is answered once the state machine has applied up to index.
type confirmedRound struct {
	index uint64
	reads []uint64
}

// Read asks for a linearizable read of the state machine. Process reports the id, which is
// the caller's own, when the state machine may be read. The caller bounds how many reads wait, and
// calls forget for those that were given up.
//
// Errors: what ended the Core. Reads without an answer then never get one.
func (c *Core) Read(id uint64) error {
	if c.err == nil {
		c.reads.waiting = append(c.reads.waiting, id)
	}
	return c.err
}

// beginRound begins a round if reads wait and none is under way, and asks again for one
// that has no answer: a leader forgets the rounds that it has not confirmed when it steps down,
// and without a leader the library drops them.
func (c *Core) beginRound() {
	r := &c.reads
	switch {
	case len(r.round) == 0 && len(r.waiting) > 0:
		r.round, r.waiting = r.waiting, nil
		r.first = r.counter + 1
	case len(r.round) == 0 || c.ticks < r.asked+readRetryTicks && !c.newLeader():
		return
	}
	r.counter++
	r.asked, r.leader, r.term = c.ticks, c.role.Lead, c.term
	context := readContext{c.config.ID, c.config.Boot, r.counter}.encode()
	c.guard(func() error { c.node.ReadIndex(context); return nil })
}

// newLeader reports whether this node knows a leader that it has not asked for the round.
func (c *Core) newLeader() bool {
	return c.role.Lead != raft.None && (c.role.Lead != c.reads.leader || c.term != c.reads.term)
}

// confirm takes the answers of the leader.
func (r *reads) confirm(c Config, answers []raft.ReadState) {
	for _, a := range answers {
		context, ok := decodeReadContext(a.RequestCtx)
		if ok && context.node == c.ID && context.boot == c.Boot && len(r.round) > 0 && context.counter >= r.first {
			r.confirmed = append(r.confirmed, confirmedRound{a.Index, r.round})
			r.rounds.Record(uint64(len(r.round)))
			r.round = nil
		}
	}
}

// answer reports the reads that the state at an index answers.
func (r *reads) answer(applied uint64, out *Output) {
	waiting := r.confirmed[:0]
	for _, c := range r.confirmed {
		if c.index <= applied {
			out.Reads = append(out.Reads, c.reads...)
		} else {
			waiting = append(waiting, c)
		}
	}
	r.confirmed = waiting
}

// held returns how many reads have no answer.
func (r *reads) held() int {
	n := len(r.waiting) + len(r.round)
	for _, c := range r.confirmed {
		n += len(c.reads)
	}
	return n
}

// forget drops the reads for which waits is false. A round without reads is none.
func (r *reads) forget(waits func(id uint64) bool) {
	kept := func(ids []uint64) (left []uint64) {
		for _, id := range ids {
			if waits(id) {
				left = append(left, id)
			}
		}
		return left
	}
	r.waiting, r.round = kept(r.waiting), kept(r.round)
	var confirmed []confirmedRound
	for _, c := range r.confirmed {
		if c.reads = kept(c.reads); len(c.reads) > 0 {
			confirmed = append(confirmed, c)
		}
	}
	r.confirmed = confirmed
}

// readContext identifies one request for a round.
type readContext struct {
	node, boot, counter uint64
}

const readContextBytes = 24

func (c readContext) encode() []byte {
	b := make([]byte, 0, readContextBytes)
	b = binary.LittleEndian.AppendUint64(b, c.node)
	b = binary.LittleEndian.AppendUint64(b, c.boot)
	return binary.LittleEndian.AppendUint64(b, c.counter)
}

func decodeReadContext(b []byte) (c readContext, ok bool) {
	if len(b) != readContextBytes {
		return c, false
	}
	return readContext{
		node:    binary.LittleEndian.Uint64(b),
		boot:    binary.LittleEndian.Uint64(b[8:]),
		counter: binary.LittleEndian.Uint64(b[16:]),
	}, true
}
