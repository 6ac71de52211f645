package main

import "github.com/kvd-db/kvd/bench/peers"

// readBytes is what was read, or a difference of two such figures. The first three
// include reads by compactions, Blocks does not. Zero where the kernel, or the store,
// does not report it.
type readBytes struct {
	Calls  int64 `json:"calls"`  // read calls of the process
	Bytes  int64 `json:"bytes"`  // that these calls returned, from any source
	Disk   int64 `json:"disk"`   // bytes requested from the disk, including read-ahead
	Blocks int64 `json:"blocks"` // read by point reads, as the store counts them
}

func readNow(s peers.Store) readBytes {
	io := processIO()
	return readBytes{io["syscr"], io["rchar"], io["read_bytes"], int64(inside(s).BlocksRead)}
}

// since returns what was read after earlier.
func (r readBytes) since(earlier readBytes) readBytes {
	return readBytes{r.Calls - earlier.Calls, r.Bytes - earlier.Bytes, r.Disk - earlier.Disk, r.Blocks - earlier.Blocks}
}
