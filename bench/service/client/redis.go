package client

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

type rueidisClient struct{ c rueidis.Client }

// rueidisFlushing returns how to open rueidis with so many microseconds of
// MaxFlushDelay; 0 are its defaults. No call asks for its cache on the client's side.
func rueidisFlushing(micros int) func(Options) (Client, error) {
	return func(o Options) (Client, error) {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress:   []string{o.Address},
			MaxFlushDelay: time.Duration(micros) * time.Microsecond,
		})
		if err != nil {
			return nil, err
		}
		return rueidisClient{c}, nil
	}
}

func (r rueidisClient) Get(ctx context.Context, key []byte) ([]byte, error) {
	return r.c.Do(ctx, r.c.B().Get().Key(rueidis.BinaryString(key)).Build()).AsBytes()
}

func (r rueidisClient) Set(ctx context.Context, key, value []byte) error {
	return r.c.Do(ctx, r.c.B().Set().Key(rueidis.BinaryString(key)).Value(rueidis.BinaryString(value)).Build()).Error()
}

func (r rueidisClient) Close() error {
	r.c.Close()
	return nil
}

type goRedis struct{ c *redis.Client }

func openGoRedis(o Options) (Client, error) {
	return goRedis{redis.NewClient(&redis.Options{Addr: o.Address})}, nil
}

func (r goRedis) Get(ctx context.Context, key []byte) ([]byte, error) {
	return r.c.Get(ctx, string(key)).Bytes()
}

func (r goRedis) Set(ctx context.Context, key, value []byte) error {
	return r.c.Set(ctx, string(key), value, 0).Err()
}

func (r goRedis) Close() error { return r.c.Close() }
