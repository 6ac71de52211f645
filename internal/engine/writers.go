package engine

import (
	"context"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
)

// writers is what takes the writes of callers. It is the part of the log that callers and
// coordinators need; what only a log of the node's own has, space and segments, is in
// Engine.log. A member of a cluster has writers in each tenure, and none in between.
type writers struct {
	coordinators []*commit.Coordinator // by partition
	log          commit.CallerLog
	tenure       *tenureLog // nil: of a node that is alone
}

// waitVisible returns once a number that these writers gave out, and all before it, are
// visible, or the writers have ended.
func (e *Engine) waitVisible(ctx context.Context, to *writers, seq kv.SeqNum) error {
	if to.tenure != nil {
		return to.tenure.waitVisible(ctx, seq)
	}
	return e.sequencer.WaitVisible(ctx, seq)
}

// confirm returns nil if the writers still take writes: on a member of a cluster, if that led at a
// moment after the call. All that was applied in earlier tenures, of whichever node, is then
// applied here, and what was proposed in them and is not will never be.
//
// Errors: a kv.NotLeaderError; those of a round.
func (e *Engine) confirm(ctx context.Context, to *writers) error {
	if to.tenure == nil {
		return nil
	}
	if err := to.tenure.during(ctx, func(ctx context.Context) error { return e.member.round(ctx, kv.Freshness{}) }); err != nil {
		return err
	}
	if e.member.leading.Load() != to {
		return leaderless(e.member.log)
	}
	return nil
}

// taking returns what takes writes now.
func (e *Engine) taking() (*writers, error) {
	if e.member == nil {
		return &e.own, nil
	}
	if w := e.member.leading.Load(); w != nil {
		return w, nil
	}
	return nil, leaderless(e.member.log)
}

// coordinatorOf returns the coordinator of a partition: the node's own or that of the member.
func (to *writers) coordinatorOf(m *member, id int) *commit.Coordinator {
	if m != nil {
		return m.coordinator(id)
	}
	return to.coordinators[id]
}
