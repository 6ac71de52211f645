package main

import (
	"fmt"
	"slices"
	"strings"

	kvdengine "github.com/kvd-db/kvd/internal/engine"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/peers/badger"
	"github.com/kvd-db/kvd/bench/peers/bbolt"
	"github.com/kvd-db/kvd/bench/peers/goleveldb"
	"github.com/kvd-db/kvd/bench/peers/kvd"
	"github.com/kvd-db/kvd/bench/peers/pebble"
)

// engine is a store that takes part, as it is set up.
type engine struct {
	name   string
	module string // whose version the report names
	open   func(peers.Options) (peers.Store, error)
}

// ours is the engine that the others are compared with.
const ours = "kvd"

// engines are all there are. A scan of kvd merges its partitions: kvd-4 and kvd-1
// show what that costs.
var engines = []engine{
	{ours, "github.com/kvd-db/kvd", kvdWith(kvdengine.DefaultPartitions)},
	{"kvd-4", "github.com/kvd-db/kvd", kvdWith(4)},
	{"kvd-1", "github.com/kvd-db/kvd", kvdWith(1)},
	{"pebble", "github.com/cockroachdb/pebble/v2", pebble.Open},
	{"badger", "github.com/dgraph-io/badger/v4", badger.Open},
	{"goleveldb", "github.com/syndtr/goleveldb", goleveldb.Open},
	{"bbolt", "go.etcd.io/bbolt", bbolt.Open},
}

func kvdWith(partitions int) func(peers.Options) (peers.Store, error) {
	return func(o peers.Options) (peers.Store, error) { return kvd.Open(o, partitions) }
}

func engineNames() []string {
	names := make([]string, len(engines))
	for i := range engines {
		names[i] = engines[i].name
	}
	return names
}

func findEngine(name string) (*engine, error) {
	i := slices.IndexFunc(engines, func(e engine) bool { return e.name == name })
	if i < 0 {
		return nil, fmt.Errorf("engine %q: want some of %s", name, strings.Join(engineNames(), ", "))
	}
	return &engines[i], nil
}
