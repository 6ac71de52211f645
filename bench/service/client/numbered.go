package client

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
)

// numberedBatch is the number of keys that are put at a time.
const numberedBatch = 1000

// FillNumbered puts the keys that redis-benchmark asks for into a Redis server:
// key:000000000000 and so on.
func FillNumbered(ctx context.Context, address string, keys, valueBytes int) error {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}})
	if err != nil {
		return err
	}
	defer c.Close()
	value := rueidis.BinaryString(make([]byte, valueBytes))
	for first := 0; first < keys; first += numberedBatch {
		var sets []rueidis.Completed
		for id := first; id < min(first+numberedBatch, keys); id++ {
			sets = append(sets, c.B().Set().Key(fmt.Sprintf("key:%012d", id)).Value(value).Build())
		}
		for _, r := range c.DoMulti(ctx, sets...) {
			if err := r.Error(); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
	}
	return nil
}
