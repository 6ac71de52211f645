package results

import (
	"cmp"
	"slices"
)

// StageNames are the stages of a call, in the order in which it passes them.
var StageNames = []string{"client", "network", "service", "inbox", "batch", "engine", "log write", "sync"}

// StageCount is the number of stages.
const StageCount = 8

// StagedCall is one call of which the stages were measured, in nanoseconds.
type StagedCall [StageCount]int64

// Total returns the time of the call.
func (s *StagedCall) Total() int64 {
	var sum int64
	for _, n := range s {
		sum += n
	}
	return sum
}

// Stages says where the time of the calls of one operation went.
type Stages struct {
	Operation string      `json:"operation"`
	Bands     []StageBand `json:"bands"`
}

// StageBand is a range of calls by their time, from one quantile to another.
type StageBand struct {
	From  float64    `json:"from"`
	To    float64    `json:"to"`
	Count int        `json:"count"`
	Nanos StagedCall `json:"nanos"` // by stage, the mean of the calls
}

var stageQuantiles = []float64{0, 0.5, 0.9, 0.99, 0.999, 1}

// NewStages summarizes calls, which it sorts. Bands without a call are left out.
func NewStages(operation string, calls []StagedCall) Stages {
	slices.SortFunc(calls, func(a, b StagedCall) int { return cmp.Compare(a.Total(), b.Total()) })
	s := Stages{Operation: operation}
	for i, from := range stageQuantiles[:len(stageQuantiles)-1] {
		to := stageQuantiles[i+1]
		part := calls[int(from*float64(len(calls))):int(to*float64(len(calls)))]
		if len(part) == 0 {
			continue
		}
		band := StageBand{From: from, To: to, Count: len(part)}
		for _, call := range part {
			for stage, n := range call {
				band.Nanos[stage] += n
			}
		}
		for stage := range band.Nanos {
			band.Nanos[stage] /= int64(len(part))
		}
		s.Bands = append(s.Bands, band)
	}
	return s
}
