package client

import (
	"context"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

type memcached struct{ c *memcache.Client }

// openGoMemcache keeps a connection for each caller: by default the client keeps two,
// and opens all others for one call.
func openGoMemcache(o Options) (Client, error) {
	c := memcache.New(o.Address)
	c.MaxIdleConns = max(o.Callers, 1)
	c.Timeout = 5 * time.Second
	return memcached{c}, nil
}

func (m memcached) Get(_ context.Context, key []byte) ([]byte, error) {
	item, err := m.c.Get(string(key))
	if err != nil {
		return nil, err
	}
	return item.Value, nil
}

func (m memcached) Set(_ context.Context, key, value []byte) error {
	return m.c.Set(&memcache.Item{Key: string(key), Value: value})
}

func (m memcached) Close() error { return m.c.Close() }
