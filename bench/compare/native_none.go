//go:build !rocksdb

package main

// native are engines that are not written in Go. This binary has none: RocksDB needs
// the build tag rocksdb and its library.
var native []engine
