package peers

import (
	"context"

	"github.com/kvd-db/kvd/internal/workload"
)

// Page visits the first n entries from a key on, n at least 1. A store that can be told
// how many are wanted is told. If visit fails, Page ends and returns the error.
func Page(ctx context.Context, s Forwarder, from []byte, n int, visit func(key, value []byte) error) error {
	if scanner, ok := s.(workload.Scanner); ok {
		return scanner.Scan(ctx, from, n, visit)
	}
	var failed error
	err := s.Forward(from, func(key, value []byte) bool {
		n--
		failed = visit(key, value)
		return failed == nil && n > 0
	})
	if failed != nil {
		return failed
	}
	return err
}

// Forwarder is what Page needs of a store.
type Forwarder interface {
	Forward(from []byte, visit Visit) error
}
