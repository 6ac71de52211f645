//go:build rocksdb

package main

import "github.com/kvd-db/kvd/bench/peers/rocksdb"

// native are engines that are not written in Go.
var native = []engine{{"rocksdb", "", rocksdb.Open}}
