package workload

import (
	"context"
	"fmt"
)

// Check reads one key, which Load has put, and checks its value.
func Check(ctx context.Context, target Target, c *Config, id uint64) error {
	key := make([]byte, c.keyBytes())
	putKey(key, id)
	value, found, err := target.Get(ctx, key, make([]byte, c.ValueBytes))
	if err != nil {
		return fmt.Errorf("get key %s: %w", key, err)
	}
	if !found {
		return fmt.Errorf("%w: key %s is lost: its put was acknowledged, and no key is ever deleted", ErrWrongAnswer, key)
	}
	_, err = checkValue(value, id, keyNames(c.keyBytes()))
	return err
}
