package load

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Fill puts all keys once, with this many callers.
func Fill(ctx context.Context, t Target, keys uint64, valueBytes, callers int) error {
	values := NewValues(valueBytes)
	type memory struct {
		key   [KeyBytes]byte
		value []byte
	}
	memories := make([]memory, callers)
	for i := range memories {
		memories[i].value = make([]byte, valueBytes)
	}
	err := loadgen.ForEach(ctx, callers, keys, nil, func(ctx context.Context, worker int, id uint64) error {
		m := &memories[worker]
		PutKey(m.key[:], id)
		values.Fill(m.value, id, 0)
		return t.Set(ctx, m.key[:], m.value)
	})
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}
