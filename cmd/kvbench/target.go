package main

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/workload"
)

// targetInfo describes the target in the report.
type targetInfo struct {
	Kind        string        `json:"kind"` // "engine" or "server"
	Address     string        `json:"address,omitempty"`
	Durability  string        `json:"durability"`
	Partitions  int           `json:"partitions,omitempty"`
	FlushKeys   int           `json:"flushKeys,omitempty"`
	Threshold   int           `json:"valueThreshold,omitempty"`
	MemoryBytes int64         `json:"memoryBytes,omitempty"` // 0: the engine's defaults
	CacheBytes  int64         `json:"cacheBytes,omitempty"`  // of the block cache; 0: its share
	BatchOps    int           `json:"batchOps,omitempty"`    // 0: the engine's default
	Linger      time.Duration `json:"lingerNanos,omitempty"`

	Activity *activity `json:"activity,omitempty"` // of an engine in this process
}

// activity counts the work of the engine from its opening to the end of the run, including
// preload and warm-up.
type activity struct {
	OpsPerWriteBatch    float64 `json:"opsPerWriteBatch"` // micro-batches of a partition
	OpsPerReadBatch     float64 `json:"opsPerReadBatch"`
	RecordsPerLogWrite  float64 `json:"recordsPerLogWrite"` // group commit
	LogSyncs            uint64  `json:"logSyncs"`
	LogBytes            uint64  `json:"logBytes"`
	FlushedBytes        uint64  `json:"flushedBytes"`
	CompactedBytes      uint64  `json:"compactedBytes"`
	MovedBytes          uint64  `json:"movedBytes,omitempty"` // of these, values that were kept apart
	ValueFileBytes      uint64  `json:"valueFileBytes,omitempty"`
	GarbageBytes        uint64  `json:"garbageBytes,omitempty"` // in them
	WrittenPerUserBytes float64 `json:"writtenPerUserBytes"`    // log, flushes and compactions
}

func (i *targetInfo) String() string {
	if i.Kind == "server" {
		return fmt.Sprintf("the server at %s, durability %s", i.Address, i.Durability)
	}
	return fmt.Sprintf("the embedded engine, %d partitions, durability %s", i.Partitions, i.Durability)
}

// observe adds what the target itself has counted.
func (i *targetInfo) observe(target workload.Target) {
	if engine, ok := target.(*engineTarget); ok {
		i.Activity = engine.activity()
	}
}

// openTarget opens what the command line names.
func openTarget(o *targetOptions) (workload.Target, targetInfo, error) {
	if o.addr != "" {
		return openClient(o)
	}
	return openEngine(o)
}
