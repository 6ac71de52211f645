package workload

import "time"

// Sample is one line of a trial's report: the counts since its start, and what happened
// since the previous line.
type Sample struct {
	NanoTime      int64       `json:"nanoTime"` // since the measurement began
	OpsPerSecond  float64     `json:"opsPerSecond"`
	SlowestSecond *float64    `json:"slowestSecondOpsPerSecond"` // null without a whole second
	Conflicts     uint64      `json:"conflicts"`                 // since the start
	FileSize      *int64      `json:"fileSize"`                  // bytes on disk; null if the target does not know
	Operations    []Operation `json:"operations"`                // those with a count
}

// Operation summarizes the operations of one name.
type Operation struct {
	Name string `json:"operation"`
	Kind
}

// Trial is the result of one measured run of workers.
type Trial struct {
	Seconds      float64     `json:"seconds"`
	Ops          uint64      `json:"ops"`
	OpsPerSecond float64     `json:"opsPerSecond"`
	Operations   []Operation `json:"operations"` // those with a count
	// Conflicts counts the transactions that had to be repeated, and ConflictRate is
	// their share of all attempts.
	Conflicts    uint64  `json:"conflicts"`
	ConflictRate float64 `json:"conflictRate"`
	// SlowestSecond is the lowest rate of any whole second, null without one.
	SlowestSecond  *float64  `json:"slowestSecondOpsPerSecond"`
	Generator      Generator `json:"generator"`
	CPUMicrosPerOp float64   `json:"cpuMicrosPerOp"`
	PeakRSSBytes   int64     `json:"peakRSSBytes"`
	DataBytes      *int64    `json:"dataBytes"` // on disk at the end; null if unknown
	Interrupted    bool      `json:"interrupted"`
	Error          string    `json:"error,omitempty"`
}

// Operation returns the operations of one name, with a count of 0 if there were none.
func (t *Trial) Operation(name string) Operation {
	for _, o := range t.Operations {
		if o.Name == name {
			return o
		}
	}
	return Operation{Name: name}
}

// setConflictRate computes the rate from the operations of one name; each was attempted
// once more than it had conflicts.
func (t *Trial) setConflictRate(name string) {
	t.ConflictRate = ratio(t.Conflicts, t.Conflicts+t.Operation(name).Count)
}

// operations summarizes those with a count.
func (c *counts) operations(names []string, elapsed time.Duration) []Operation {
	var list []Operation
	for i, name := range names {
		if c.latency[i].Count() > 0 {
			list = append(list, Operation{name, newKind(&c.latency[i], elapsed)})
		}
	}
	return list
}
