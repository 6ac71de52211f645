package reason

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
)

// Each class is found by its own error, also if that matches a later class too, and an
// unknown outcome before everything else.
func TestEveryClassIsFound(t *testing.T) {
	for _, want := range classes {
		for _, err := range []error{want.Err, fmt.Errorf("read block: %w", want.Err)} {
			got, ok := Classify(err)
			assert.True(t, ok)
			assert.Equal(t, want, got)
		}
		got, _ := Classify(fmt.Errorf("%w: %w", want.Err, kv.ErrUncertain))
		assert.Equal(t, OutcomeUnknown, got.Reason)
		assert.NotEmpty(t, want.Message)
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded, errors.New("a bug")} {
		_, ok := Classify(err)
		assert.False(t, ok, err)
	}
}
