package main

import (
	"runtime"
	"runtime/debug"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
)

// heldBytes is what a process holds when there is no garbage, or a difference of two
// such figures. Heap is what the collector left, and exact to some 100 KiB; Resident is
// what the kernel counts of memory that is no file, to some MiB.
type heldBytes struct {
	Heap     int64 `json:"heap"`
	Resident int64 `json:"resident"`
}

// heldNow collects garbage and gives it back to the kernel.
func heldNow() heldBytes {
	runtime.GC() // what lies in a pool goes with the second collection
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heldBytes{int64(m.HeapAlloc), process.StatusBytes(process.Self, "RssAnon:")}
}

// heldBy is what a store holds, but for its block cache, of a process that held
// earlier before it was opened.
func heldBy(s peers.Store, earlier heldBytes) heldBytes {
	now := heldNow()
	cached := inside(s).CacheBytes
	return heldBytes{now.Heap - earlier.Heap - cached, now.Resident - earlier.Resident - cached}
}

// inside is what a store tells of itself, nothing if it does not.
func inside(s peers.Store) peers.Inside {
	if i, ok := s.(peers.Insider); ok {
		return i.Inside()
	}
	return peers.Inside{}
}
