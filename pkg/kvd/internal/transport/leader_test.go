package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// A write that is refused because another node leads is tried at each other endpoint at once, and then
// after a wait. What was tried at once does not make the search for a leader shorter.
func TestTheOtherEndpointsAreAskedForTheLeaderAtOnce(t *testing.T) {
	refused := func(cause string) *fault {
		f := &fault{err: backend.ErrReadOnly, reason: kvdpb.ReasonNotLeader, undone: true}
		f.because(cause)
		return f
	}
	c := &Network{budget: newRetryBudget(), endpoints: 3}
	a := c.attempts(t.Context())
	waits, waited := 0, time.Duration(0)
	for i := range 3 * leaderAttempts {
		wait, err := a.next(refused(kvdpb.CauseElsewhere))
		if err != nil {
			require.Equal(t, 3*leaderAttempts-3, i)
			break
		}
		if i%3 < 2 {
			require.Zero(t, wait, "attempt %d", i)
		} else {
			waits++
			waited += wait
		}
	}
	require.Equal(t, leaderAttempts-1, waits)
	require.Positive(t, waited)

	// Nor does it make the first wait longer: that is the one after a single attempt.
	first := time.Duration(0)
	for range 200 {
		c := &Network{budget: newRetryBudget(), endpoints: 3}
		a := c.attempts(t.Context())
		for range 3 {
			wait, err := a.next(refused(kvdpb.CauseElsewhere))
			require.NoError(t, err)
			first = max(first, wait)
		}
	}
	require.Less(t, first, backoffBase<<1)

	a, waited = c.attempts(t.Context()), 0
	for range 5 {
		wait, err := a.next(refused(""))
		require.NoError(t, err)
		waited += wait
	}
	require.Positive(t, waited, "those nodes know no leader")
	require.Zero(t, a.directs)
	alone := &Network{budget: newRetryBudget(), endpoints: 1}
	a = alone.attempts(t.Context())
	_, err := a.next(refused(kvdpb.CauseElsewhere))
	require.ErrorIs(t, err, backend.ErrReadOnly, "no other endpoint is known")
}

// A write that each endpoint refuses, because another node leads, is then attempted as a call that the
// first one forwards. That costs the budget nothing, and if it is in vain, there is a wait.
func TestAWriteIsForwardedIfNoEndpointLeads(t *testing.T) {
	c := &Network{budget: new(retryBudget), endpoints: 3}
	c.requestIDs.init()
	elsewhere := func() *fault {
		f := &fault{err: backend.ErrReadOnly, reason: kvdpb.ReasonNotLeader, undone: true}
		f.because(kvdpb.CauseElsewhere)
		return f
	}
	a := c.writeAttempts(t.Context())
	for i := range 3 {
		wait, err := a.next(elsewhere())
		require.NoError(t, err)
		require.Zero(t, wait)
		require.Equal(t, i == 2, a.forward)
	}
	_, err := a.next(elsewhere())
	require.ErrorIs(t, err, backend.ErrReadOnly, "a wait costs a retry, and the budget is empty")
	require.False(t, a.forward)
}
