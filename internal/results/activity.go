package results

import (
	"bytes"
	"encoding/json"
)

// Activity counts the work of a store during the measurement of a run.
type Activity struct {
	OpsPerWriteBatch    float64 `json:"opsPerWriteBatch"` // micro-batches of a partition
	OpsPerReadBatch     float64 `json:"opsPerReadBatch"`
	ReadsPerFrame       float64 `json:"readsPerFrame,omitempty"` // on the network
	RecordsPerLogWrite  float64 `json:"recordsPerLogWrite"`      // group commit
	LogSyncs            uint64  `json:"logSyncs"`
	LogBytes            uint64  `json:"logBytes"`
	FlushedBytes        uint64  `json:"flushedBytes"`
	CompactedBytes      uint64  `json:"compactedBytes"`
	MovedBytes          uint64  `json:"movedBytes,omitempty"` // of these, values that were kept apart
	ValueFileBytes      uint64  `json:"valueFileBytes,omitempty"`
	GarbageBytes        uint64  `json:"garbageBytes,omitempty"` // in them
	WrittenPerUserBytes float64 `json:"writtenPerUserBytes"`    // log, flushes and compactions
	// DiskReadBytes and DiskWrittenBytes are what the process moved between memory and disk.
	DiskReadBytes    uint64 `json:"diskReadBytes,omitempty"`
	DiskWrittenBytes uint64 `json:"diskWrittenBytes,omitempty"`
	DiskUnknown      bool   `json:"diskUnknown,omitempty"` // both are 0, because another process moved them
	// WriteBatches and ReadBatches are how many micro-batches had which size: pairs of a
	// size, a power of two, and a count of those that were not larger, but larger than the
	// size before.
	WriteBatches [][2]uint64 `json:"writeBatches,omitempty"`
	ReadBatches  [][2]uint64 `json:"readBatches,omitempty"`
}

// Counters returns what the store counted; nil if the target of the run could not tell.
func (r *Run) Counters() *Activity {
	switch a := r.Activity.(type) {
	case nil:
		return nil
	case *Activity:
		return a
	}
	data, err := json.Marshal(r.Activity) // as it was read from a file
	if err != nil || bytes.Equal(data, []byte("null")) {
		return nil
	}
	a, d := new(Activity), json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // of another program; counters may all be 0
	if d.Decode(a) != nil {
		return nil
	}
	return a
}
