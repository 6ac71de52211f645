package main

import "github.com/kvd-db/kvd/internal/report"

// trialLabel tells one trial of a command from the others.
type trialLabel struct {
	Benchmark string `json:"benchmark"` // the command
	Workload  string `json:"workload,omitempty"`
	Threads   int    `json:"threads"`
}

func (l trialLabel) String() string {
	return l.Workload + ", " + report.Plural(l.Threads, "thread")
}
