package main

import (
	"runtime"
	"runtime/debug"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/process"
)

// heldBytes is the memory of a process without garbage, or a difference of two such
// figures. Heap is exact to about 100 KiB; Resident, which the kernel counts for memory
// that is not backed by files, to some MiB.
type heldBytes struct {
	Heap     int64 `json:"heap"`
	Resident int64 `json:"resident"`
}

// heldNow collects garbage and returns it to the kernel.
func heldNow() heldBytes {
	runtime.GC() // objects in a sync.Pool are freed by the second collection
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heldBytes{int64(m.HeapAlloc), process.StatusBytes(process.Self, "RssAnon:")}
}

// heldBy returns the memory of a store without its block cache, given what the process
// held before the store was opened.
func heldBy(s peers.Store, earlier heldBytes) heldBytes {
	now := heldNow()
	cached := inside(s).CacheBytes
	return heldBytes{now.Heap - earlier.Heap - cached, now.Resident - earlier.Resident - cached}
}

// inside returns the internal figures of a store, zero if it reports none.
func inside(s peers.Store) peers.Inside {
	if i, ok := s.(peers.Insider); ok {
		return i.Inside()
	}
	return peers.Inside{}
}
