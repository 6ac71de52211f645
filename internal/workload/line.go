package workload

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

	OpsPerSecond  float64  `json:"opsPerSecond"`
	SlowestSecond *float64 `json:"slowestSecondOpsPerSecond"` // null without a whole second
	PutNanos      Latency  `json:"putNanos"`
	DeleteNanos   Latency  `json:"deleteNanos"`
	GetNanos      Latency  `json:"getNanos"`
}
