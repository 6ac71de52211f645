package main

import "context"

// reader reads the payload of a key that exists. It is for one goroutine, one read at a
// time. key is borrowed until the call returns; the payload belongs to the caller.
type reader func(ctx context.Context, key []byte) (payload []byte, err error)

// The stores that are compared, as --stores and the report name them.
const (
	storePostgreSQL = "postgresql"
	storeServer     = "kvd server"
	storeEmbedded   = "kvd embedded"
)

// stores is all of them, in the order of the report.
var stores = []string{storePostgreSQL, storeServer, storeEmbedded}

// opened is a store with one way to read, for one run.
type opened struct {
	newReader func() reader
	// readsPerBatch returns how many reads a batch had on average; nil: not known.
	readsPerBatch func() float64
	close         func() error
}

// store holds the rows.
type store interface {
	// open returns the store for reads in batches of a size: a number, or
	// experiment.BatchNone or BatchAdaptive. ctx ends what the reads need.
	open(ctx context.Context, batch string) (*opened, error)
	// batches returns the batch sizes that the store can be asked for, out of fixed ones.
	batches(fixed []string) []string
	// describe returns what the report says of the store.
	describe() target
	// Close ends the store and removes its data.
	Close() error
}

// target describes a store in result.json.
type target struct {
	Kind        string `json:"kind"` // "server", if it is another process, or "engine"
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memoryBytes"` // for caches
	DiskBytes   int64  `json:"diskBytes"`   // of the rows
}
