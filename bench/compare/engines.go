package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/peers/badger"
	"github.com/kvd-db/kvd/bench/peers/bbolt"
	"github.com/kvd-db/kvd/bench/peers/goleveldb"
	"github.com/kvd-db/kvd/bench/peers/kvd"
	"github.com/kvd-db/kvd/bench/peers/pebble"
)

// engine is a store in one configuration.
type engine struct {
	name   string
	module string // whose version the report names
	open   func(peers.Options) (peers.Store, error)
}

// ours is the default store, by which goals are judged. The others have 4 and 16
// partitions.
const (
	ours   = "kvd"
	ours4  = "kvd-4"
	ours16 = "kvd-16"

	ourModule = "github.com/kvd-db/kvd"
)

// engines are all engines. A scan of kvd merges its partitions: kvd-4 and kvd-1 show
// what that costs.
var engines = []engine{
	{ours, ourModule, kvdWith(0)},
	{"kvd-4", ourModule, kvdWith(4)},
	{"kvd-1", ourModule, kvdWith(1)},
	{"pebble", "github.com/cockroachdb/pebble/v2", pebble.Open},
	{"pebble-4k", "github.com/cockroachdb/pebble/v2", pebble.OpenSmall},
	{"badger", "github.com/dgraph-io/badger/v4", badger.Open},
	{"goleveldb", "github.com/syndtr/goleveldb", goleveldb.Open},
	{"bbolt", "go.etcd.io/bbolt", bbolt.Open},
}

// apart are engines that are configured to separate large values from their keys. They
// differ from the others where values are large.
var apart = []engine{
	{"pebble-blob", "github.com/cockroachdb/pebble/v2", pebble.OpenBlob},
	{"pebble-4k-blob", "github.com/cockroachdb/pebble/v2", pebble.OpenSmallBlob},
	{"badger-vlog", "github.com/dgraph-io/badger/v4", badger.OpenApart},
}

// pebbles are Pebble in all of its configurations: goals beside it are judged by the best.
var pebbles = []string{"pebble", "pebble-4k", "pebble-blob", "pebble-4k-blob"}

func kvdWith(partitions int) func(peers.Options) (peers.Store, error) {
	return func(o peers.Options) (peers.Store, error) { return kvd.Open(o, partitions) }
}

func engineNames() []string { return namesOf(engines) }

func namesOf(engines []engine) []string {
	names := make([]string, len(engines))
	for i := range engines {
		names[i] = engines[i].name
	}
	return names
}

// withPartitions names our engine with this many partitions.
func withPartitions(n int) string { return fmt.Sprintf("%s-%d", ours, n) }

// findEngine returns an engine by its name. Our engine has a name for each number of
// partitions.
func findEngine(name string) (*engine, error) {
	for _, list := range [][]engine{engines, apart, native} {
		if i := slices.IndexFunc(list, func(e engine) bool { return e.name == name }); i >= 0 {
			return &list[i], nil
		}
	}
	var partitions int
	if n, err := fmt.Sscanf(name, ours+"-%d", &partitions); n == 1 && err == nil && partitions > 0 && name == withPartitions(partitions) {
		return &engine{name, ourModule, kvdWith(partitions)}, nil
	}
	return nil, fmt.Errorf("engine %q: want some of %s", name, strings.Join(slices.Concat(engineNames(), namesOf(apart), namesOf(native)), ", "))
}
