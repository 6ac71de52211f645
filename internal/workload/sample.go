package workload

import "time"

// Sample is one line of a trial's report: the counts since its start and what
// happened in the time that ends here.
type Sample struct {
	NanoTime      int64       `json:"nanoTime"` // since the measurement began
	OpsPerSecond  float64     `json:"opsPerSecond"`
	SlowestSecond *float64    `json:"slowestSecondOpsPerSecond"` // null if no second was whole
	Conflicts     uint64      `json:"conflicts"`                 // counted since the start
	FileSize      *int64      `json:"fileSize"`                  // bytes on disk; null if the target does not know
	Operations    []Operation `json:"operations"`                // that happened
}

// Operation sums up the operations of one name.
type Operation struct {
	Name string `json:"operation"`
	Kind
}

// Trial is what a measured run of workers came to.
type Trial struct {
	Seconds      float64     `json:"seconds"`
	Ops          uint64      `json:"ops"`
	OpsPerSecond float64     `json:"opsPerSecond"`
	Operations   []Operation `json:"operations"` // that happened
	// Conflicts are transactions that had to begin again, and ConflictRate is
	// their share of all that began.
	Conflicts    uint64  `json:"conflicts"`
	ConflictRate float64 `json:"conflictRate"`
	// SlowestSecond is the lowest rate of any whole second, null if there was none.
	SlowestSecond  *float64  `json:"slowestSecondOpsPerSecond"`
	Generator      Generator `json:"generator"`
	CPUMicrosPerOp float64   `json:"cpuMicrosPerOp"`
	PeakRSSBytes   int64     `json:"peakRSSBytes"`
	DataBytes      *int64    `json:"dataBytes"` // on disk at the end; null if unknown
	Interrupted    bool      `json:"interrupted"`
	Error          string    `json:"error,omitempty"`
}

// Operation returns the operations of one name; no operations if none happened.
func (t *Trial) Operation(name string) Operation {
	for _, o := range t.Operations {
		if o.Name == name {
			return o
		}
	}
	return Operation{Name: name}
}

// setConflictRate relates the conflicts to the operations of one name, each of
// which began once more than it met conflicts.
func (t *Trial) setConflictRate(name string) {
	t.ConflictRate = ratio(t.Conflicts, t.Conflicts+t.Operation(name).Count)
}

// operations sums up those that happened.
func (c *counts) operations(names []string, elapsed time.Duration) []Operation {
	var list []Operation
	for i, name := range names {
		if c.latency[i].Count() > 0 {
			list = append(list, Operation{name, newKind(&c.latency[i], elapsed)})
		}
	}
	return list
}
