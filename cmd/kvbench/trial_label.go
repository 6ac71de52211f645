package main

import "fmt"

// trialLabel tells one trial of a command from the others.
type trialLabel struct {
	Benchmark string `json:"benchmark"` // the command
	Workload  string `json:"workload,omitempty"`
	Threads   int    `json:"threads"`
}

func (l trialLabel) String() string {
	return fmt.Sprintf("%s, %d threads", l.Workload, l.Threads)
}
