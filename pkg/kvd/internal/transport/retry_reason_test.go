package transport

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// An error after failed tries and an expired deadline matches both causes.
func TestADeadlineAfterFailedTriesSaysWhyTheyFailed(t *testing.T) {
	c := &Network{budget: newRetryBudget()}
	tries := c.attempts(t.Context())
	require.NoError(t, tries.again(t.Context(), &fault{err: backend.ErrUnavailable, transient: true, undone: true}))
	err := tries.again(t.Context(), &fault{err: context.DeadlineExceeded, undone: true})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.ErrorIs(t, err, backend.ErrUnavailable)

	tries = c.attempts(t.Context())
	err = tries.again(t.Context(), &fault{err: context.DeadlineExceeded, undone: true})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, backend.ErrUnavailable, "a server that is only slow was reached")
}
