package main

import (
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// kindServer is the kind of a server in another process.
const kindServer = "server"

// targetInfo describes the target in the report.
type targetInfo struct {
	Kind        string        `json:"kind"` // "engine", kindServer or "server in this process"
	Address     string        `json:"address,omitempty"`
	Durability  string        `json:"durability"`
	Partitions  int           `json:"partitions,omitempty"`
	FlushKeys   int           `json:"flushKeys,omitempty"`
	Threshold   int           `json:"valueThreshold,omitempty"`
	MemoryBytes int64         `json:"memoryBytes,omitempty"` // 0: the engine's defaults
	CacheBytes  int64         `json:"cacheBytes,omitempty"`  // of the block cache; 0: its share
	BatchOps    int           `json:"batchOps,omitempty"`    // 0: the engine's default
	Linger      time.Duration `json:"lingerNanos,omitempty"`
	ReadLatency time.Duration `json:"readLatencyNanos,omitempty"` // artificial, of each read of a file
	ReadDepth   int           `json:"readDepth,omitempty"`        // how many of these at a time; 0: any number

	// Activity is that of an engine in this process, or of a server whose metrics are read.
	Activity *activity `json:"activity,omitempty"`
}

// activity is what an engine in this process did during the last measurement.
type activity = results.Activity

// staged is a target that says where the time of calls went. begin is called when a
// measurement begins.
type staged interface {
	begin()
	stages() []results.Stages
}

// measured tells a target that a measurement begins or ends.
func measured(target workload.Target, begins bool) {
	if s, ok := target.(staged); ok && begins {
		s.begin()
	}
}

// describing is a target that can tell what its store holds.
type describing interface {
	state() *results.StoreState
}

// stateOf returns the function that tells what a target's store holds; nil if it cannot.
func stateOf(target workload.Target) func() *results.StoreState {
	if d, ok := target.(describing); ok {
		return d.state
	}
	return nil
}

// stagesOf returns where the time of calls went during the last measurement.
func stagesOf(target workload.Target) []results.Stages {
	if s, ok := target.(staged); ok {
		return s.stages()
	}
	return nil
}

func (i *targetInfo) String() string {
	if i.Kind == kindServer {
		return fmt.Sprintf("the server at %s, durability %s", i.Address, i.Durability)
	}
	return fmt.Sprintf("the embedded engine, %d partitions, durability %s", i.Partitions, i.Durability)
}

// active is a target that can tell what its store did during the last measurement; nil if it
// turned out that it cannot.
type active interface {
	activity() *activity
}

// observe adds what the target itself has counted.
func (i *targetInfo) observe(target workload.Target) {
	if a, ok := target.(active); ok {
		i.Activity = a.activity()
	}
}

// openTarget opens what the command line names.
func openTarget(o *targetOptions) (workload.Target, targetInfo, error) {
	switch {
	case o.addr != "":
		return openClient(o)
	case o.server:
		return openServer(o)
	}
	return openEngine(o)
}
