package transport

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A client whose token is empty shows none by gRPC either: the server would take the empty one for a
// wrong one, and refuse a client that has a certificate, and whose frames it takes.
func TestAnEmptyTokenIsNone(t *testing.T) {
	o := &Options{Token: func() (string, error) { return "", nil }}
	header, err := bearer{o}.GetRequestMetadata(t.Context())
	require.NoError(t, err)
	assert.Empty(t, header)
}
