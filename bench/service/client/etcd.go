package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

type etcdClient struct{ c *clientv3.Client }

func openEtcd(o Options) (Client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(o.Address, ","), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return etcdClient{c}, nil
}

var errAbsent = errors.New("the key is not there")

func (e etcdClient) Get(ctx context.Context, key []byte) ([]byte, error) {
	r, err := e.c.Get(ctx, string(key))
	if err != nil {
		return nil, err
	}
	if len(r.Kvs) != 1 {
		return nil, fmt.Errorf("%q: %w", key, errAbsent)
	}
	return r.Kvs[0].Value, nil
}

func (e etcdClient) Set(ctx context.Context, key, value []byte) error {
	_, err := e.c.Put(ctx, string(key), string(value))
	return err
}

func (e etcdClient) Close() error { return e.c.Close() }
