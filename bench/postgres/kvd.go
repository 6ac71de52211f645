package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/kvd-db/kvd/bench/disk"
	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// kvdServer is a kvd server, another process, which is asked by kvd's Go client.
type kvdServer struct {
	server *server.Server
	bytes  int64 // on disk
}

// newKVDServer starts a server below dir and fills it.
func newKVDServer(ctx context.Context, binary, dir string, rows uint64, told progress) (_ *kvdServer, err error) {
	s, err := server.Start(ctx, server.KVD(binary, 0), dir)
	if err != nil {
		return nil, err
	}
	k := &kvdServer{server: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	db, err := kvd.Open(s.Address, kvd.WithDurability(kvd.Buffered))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(loadRows(ctx, db, storeServer, rows, told), db.Close(), s.Settle(ctx)); err != nil {
		return nil, err
	}
	k.bytes, err = disk.Used(filepath.Join(dir, s.Kind.Name, "data"))
	return k, err
}

func (k *kvdServer) batches(fixed []string) []string {
	all := append([]string{experiment.BatchNone}, fixed...)
	return append(all, experiment.BatchAdaptive)
}

func (k *kvdServer) open(_ context.Context, batch string) (*opened, error) {
	var batching kvd.Batching
	switch batch {
	case experiment.BatchAdaptive:
	case experiment.BatchNone:
		batching.Disabled = true
	default:
		var err error
		if batching.MaxOps, err = strconv.Atoi(batch); err != nil {
			return nil, err
		}
	}
	db, err := kvd.Open(k.server.Address, kvd.WithBatching(batching))
	if err != nil {
		return nil, err
	}
	return &opened{newReader: func() reader { return kvdReader(db) }, close: db.Close}, nil
}

func (k *kvdServer) describe() target {
	return target{Kind: "server", Name: "kvd serve", MemoryBytes: server.BudgetBytes, DiskBytes: k.bytes}
}

func (k *kvdServer) Close() error { return k.server.Stop() }

// kvdEmbedded is a store in this process. It is open only while it is measured, so that it
// takes no memory from the others.
type kvdEmbedded struct {
	dir   string
	bytes int64 // on disk
}

func newKVDEmbedded(ctx context.Context, dir string, rows uint64, told progress) (*kvdEmbedded, error) {
	k := &kvdEmbedded{dir: filepath.Join(dir, "embedded")}
	db, err := k.openStore()
	if err != nil {
		return nil, err
	}
	err = errors.Join(loadRows(ctx, db.Client, storeEmbedded, rows, told), db.Close())
	if err == nil {
		k.bytes, err = disk.Used(k.dir)
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *kvdEmbedded) openStore() (*embed.Store, error) {
	return embed.Open(k.dir, embed.WithMemory(server.BudgetBytes), embed.WithDurability(kvd.Buffered))
}

// batches returns none of the fixed sizes: the store has no such setting.
func (k *kvdEmbedded) batches([]string) []string { return []string{experiment.BatchAdaptive} }

func (k *kvdEmbedded) open(context.Context, string) (*opened, error) {
	db, err := k.openStore()
	if err != nil {
		return nil, err
	}
	return &opened{newReader: func() reader { return kvdReader(db.Client) }, close: db.Close}, nil
}

func (k *kvdEmbedded) describe() target {
	return target{Kind: "engine", Name: "kvd embedded", MemoryBytes: server.BudgetBytes, DiskBytes: k.bytes}
}

func (k *kvdEmbedded) Close() error { return os.RemoveAll(k.dir) }

// kvdReader returns a reader of a store of kvd, in this process or in another.
func kvdReader(db *kvd.Client) reader {
	return func(ctx context.Context, key []byte) ([]byte, error) {
		payload, err := db.Get(ctx, key)
		if errors.Is(err, kvd.ErrNotFound) {
			err = errAbsent
		}
		return payload, err
	}
}

// Rows are loaded in batches, several at a time.
const (
	loadBatch = 1000
	loaders   = 4
)

// loadRows puts all rows.
func loadRows(ctx context.Context, db *kvd.Client, name string, rows uint64, told progress) error {
	batches := (rows + loadBatch - 1) / loadBatch
	err := loadgen.ForEach(ctx, loaders, batches, func(done, _ uint64) {
		told("%s: %d of %d rows", name, min(done*loadBatch, rows), rows)
	}, func(ctx context.Context, _ int, n uint64) error {
		var b kvd.Batch
		for row := n*loadBatch + 1; row <= min((n+1)*loadBatch, rows); row++ {
			key, payload := make([]byte, keyBytes), make([]byte, payloadBytes)
			putKey(key, row)
			putPayload(payload, row)
			b.Put(key, payload)
		}
		_, err := db.Apply(ctx, &b)
		return err
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	return nil
}
