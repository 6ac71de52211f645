package transport

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func (c caller) framedGet(ctx context.Context, key string) *inFrame {
	o := &backend.Operation{Op: backend.Op{Mutation: backend.Mutation{Kind: backend.Get, Key: []byte(key)}}}
	f := &inFrame{Operation: o, op: frameOp(&o.Op)}
	f.tries = c.attemptsAt(ctx, &f.op)
	return f
}

// An operation of a pipeline that is refused because its server cannot be reached has the client's timeout
// from then on, as one that was sent has.
func TestARefusedOperationOfAPipelineIsBounded(t *testing.T) {
	c := openScript(t, nil, Options{Timeout: time.Hour})
	for _, conn := range c.conns {
		conn.mu.refusal, conn.mu.until = &fault{err: backend.ErrUnavailable, transient: true, undone: true}, time.Now().Add(time.Hour)
	}
	o := c.framedGet(t.Context(), "k")
	c.tryAll(t.Context(), []*inFrame{o})
	require.NotNil(t, o.fault)
	require.ErrorIs(t, o.fault.err, backend.ErrUnavailable)
	assert.False(t, o.tries.deadline.IsZero())
}

// Each operation of a pipeline that is tried again has its own deadline.
func TestOperationsOfAPipelineHaveTheirOwnDeadlines(t *testing.T) {
	c := openAt(t, new(servertest.Map).Listen(t), Options{Timeout: time.Hour})
	late, early := c.framedGet(t.Context(), "late"), c.framedGet(t.Context(), "early")
	late.tries.deadline, early.tries.deadline = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, all := range [][]*inFrame{{late, early}, {early, late}} {
		for _, o := range all {
			o.fault = nil
		}
		c.tryAll(t.Context(), all)
		require.NotNil(t, late.fault)
		assert.ErrorIs(t, late.fault.err, context.DeadlineExceeded)
		require.NotNil(t, early.fault)
		assert.Equal(t, kvdpb.ReasonKeyNotFound, early.fault.reason)
	}
}
