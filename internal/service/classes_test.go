package service

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/reason"
)

// Every class of errors, the store's and the server's, has a code.
func TestEveryClassOfErrorsHasACode(t *testing.T) {
	for _, class := range append(reason.Classes(), ownClasses...) {
		got, known := classify(class.Err)
		require.True(t, known)
		assert.Equal(t, class, got)
		assert.NotEqual(t, OK, codes[class.Reason], class.Reason)
	}
}
