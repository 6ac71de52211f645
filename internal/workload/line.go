package workload

import "github.com/kvd-db/kvd/internal/loadgen"

// Line is one line of the report: what happened since the previous line. The counts
// come first, with the names and in the order of the articles' own benchmark.
type Line struct {
	NanoTime    int64   `json:"nanoTime"` // since the measurement began
	Put         uint64  `json:"put"`
	Delete      uint64  `json:"delete"`
	DeleteFound *uint64 `json:"deleteFound"` // null unless deletes were checked
	Get         uint64  `json:"get"`
	GetFound    uint64  `json:"getFound"`
	FileSize    *int64  `json:"fileSize"` // bytes on disk; null if the target does not know

	OpsPerSecond  float64         `json:"opsPerSecond"`
	SlowestSecond *float64        `json:"slowestSecondOpsPerSecond"` // null without a whole second
	PutNanos      loadgen.Latency `json:"putNanos"`
	DeleteNanos   loadgen.Latency `json:"deleteNanos"`
	GetNanos      loadgen.Latency `json:"getNanos"`
}

func newLine(s *loadgen.Sample, checkDeletes bool) Line {
	put, del, get := s.Operation(kindNames[kindPut]), s.Operation(kindNames[kindDelete]), s.Operation(kindNames[kindGet])
	l := Line{
		NanoTime: s.NanoTime, Put: put.Count, Delete: del.Count, Get: get.Count,
		GetFound: s.Counts.Extra[getFound], FileSize: s.FileSize,
		OpsPerSecond: s.OpsPerSecond, SlowestSecond: s.SlowestSecond,
		PutNanos: put.Nanos, DeleteNanos: del.Nanos, GetNanos: get.Nanos,
	}
	if checkDeletes {
		l.DeleteFound = &s.Counts.Extra[deleteFound]
	}
	return l
}
