package embed

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Every class of errors of the store is an error of package kvd, with its reason, and either
// the text of the class or that of the error.
func TestEveryClassOfErrorsHasAMeaning(t *testing.T) {
	for _, class := range reason.Classes() {
		err := fmt.Errorf("read block 7: %w", class.Err)
		f := failure(err).(*backend.Failure)
		require.NotErrorIs(t, f, backend.ErrInternal, class.Reason)
		assert.Error(t, f.Err, class.Reason)
		assert.Equal(t, class.Reason, f.Reason)
		assert.Contains(t, []string{class.Message, err.Error()}, f.Message)
	}
}
