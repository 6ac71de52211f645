package workload

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Summary is the result of a run. It is one JSON object; durations are in nanoseconds
// unless the name says otherwise.
type Summary struct {
	Workload     Settings            `json:"workload"`
	Target       any                 `json:"target,omitempty"` // how the target was configured; filled in by the caller
	Environment  loadgen.Environment `json:"environment"`      // filled in by the caller
	Seconds      float64             `json:"seconds"`
	Ops          uint64              `json:"ops"`
	OpsPerSecond float64             `json:"opsPerSecond"`
	Put          loadgen.Kind        `json:"put"`
	Delete       loadgen.Kind        `json:"delete"`
	Get          loadgen.Kind        `json:"get"`
	Found        FoundRate           `json:"foundRate"`
	// SlowestSecond is the lowest rate of any whole second, null without one. A value
	// far below the mean indicates stalls that the mean hides.
	SlowestSecond *float64 `json:"slowestSecondOpsPerSecond"`
	// LongestStallNanos is the longest time in which no operation of any worker ended,
	// to within 5 ms.
	LongestStallNanos int64             `json:"longestStallNanos"`
	Generator         loadgen.Generator `json:"generator"`
	// CPUMicrosPerOp and PeakRSSBytes are those of this process: the generator and an
	// embedded engine, or the generator and a client.
	CPUMicrosPerOp float64 `json:"cpuMicrosPerOp"`
	PeakRSSBytes   int64   `json:"peakRSSBytes"`
	DataBytes      *int64  `json:"dataBytes"` // on disk at the end; null if unknown
	// Late, Missed and Refused are those of loadgen.Trial.
	Late        *loadgen.Late `json:"late,omitempty"`
	Missed      *loadgen.Kind `json:"missed,omitempty"`
	Refused     uint64        `json:"refused,omitempty"`
	Interrupted bool          `json:"interrupted"`
	Error       string        `json:"error,omitempty"`

	// Trial is what all of this was taken from.
	Trial *loadgen.Trial `json:"-"`
}

// Settings is the Config of a run in the form of the report.
type Settings struct {
	Mix             string       `json:"mix"`
	Loop            string       `json:"loop"` // "closed" or "open"
	OpsPerSecond    uint64       `json:"targetOpsPerSecond,omitempty"`
	Arrivals        string       `json:"arrivals,omitempty"` // of an open loop: "fixed" or "poisson"
	Threads         int          `json:"threads"`
	Keys            uint64       `json:"keys"`
	KeyBytes        int          `json:"keyBytes"`
	ValueBytes      int          `json:"valueBytes"`
	FindRate        float64      `json:"findRate"`
	Distribution    Distribution `json:"distribution"`
	Theta           float64      `json:"theta,omitempty"`        // of a Zipfian distribution
	ValueSizes      string       `json:"valueSizes,omitempty"`   // if there are several; valueBytes is the largest
	Compressible    float64      `json:"compressible,omitempty"` // share of a value that repeats
	Preload         uint64       `json:"preload"`
	Reused          bool         `json:"reused,omitempty"`
	Unverified      bool         `json:"unverified,omitempty"`
	Present         uint64       `json:"present,omitempty"`
	GetBatch        int          `json:"getBatch,omitempty"`
	CheckDeletes    bool         `json:"checkDeletes"`
	Seed            uint64       `json:"seed"`
	WarmupSeconds   float64      `json:"warmupSeconds"`
	DurationSeconds float64      `json:"durationSeconds"`
	Operations      uint64       `json:"operations,omitempty"` // the run ended after so many
}

// FoundRate compares the share of reads that should have found something with the share
// that did. They differ because another worker may delete a key that a worker knows,
// and no key is known at the start. The original benchmark counted such keys as known
// and reported only the nominal rate.
type FoundRate struct {
	Nominal float64  `json:"nominal"`
	Known   float64  `json:"known"`  // gets of a key that the worker expected to be present
	Get     float64  `json:"get"`    // gets that found something
	Delete  *float64 `json:"delete"` // deletes that found something; null unless checked
}

func newSummary(c *Config, t *loadgen.Trial) *Summary {
	gets := t.Operation(kindNames[kindGet])
	asked := gets.Count * uint64(max(c.GetBatch, 1))
	s := &Summary{
		Workload:     newSettings(c),
		Seconds:      t.Seconds,
		Ops:          t.Ops,
		OpsPerSecond: t.OpsPerSecond,
		Put:          t.Operation(kindNames[kindPut]).Kind,
		Delete:       t.Operation(kindNames[kindDelete]).Kind,
		Get:          gets.Kind,
		Found: FoundRate{
			Nominal: c.FindRate,
			Known:   loadgen.Ratio(t.Counts.Extra[getKnown], asked),
			Get:     loadgen.Ratio(t.Counts.Extra[getFound], asked),
		},
		SlowestSecond:     t.SlowestSecond,
		LongestStallNanos: t.LongestStallNanos,
		Generator:         t.Generator,
		CPUMicrosPerOp:    t.CPUMicrosPerOp,
		PeakRSSBytes:      t.PeakRSSBytes,
		DataBytes:         t.DataBytes,
		Late:              t.Late,
		Missed:            t.Missed,
		Refused:           t.Refused,
		Interrupted:       t.Interrupted,
		Error:             t.Error,
		Trial:             t,
	}
	if c.CheckDeletes {
		found := loadgen.Ratio(t.Counts.Extra[deleteFound], s.Delete.Count)
		s.Found.Delete = &found
	}
	return s
}

func newSettings(c *Config) Settings {
	loop, arrivals := "closed", ""
	if c.OpsPerSecond > 0 {
		loop, arrivals = "open", "fixed"
		if c.Poisson {
			arrivals = "poisson"
		}
	}
	s := Settings{
		Mix: c.Mix.Name, Loop: loop, OpsPerSecond: c.OpsPerSecond, Arrivals: arrivals, Threads: c.Workers,
		Keys: c.Keys, KeyBytes: c.keyBytes(), ValueBytes: c.ValueBytes,
		FindRate: c.FindRate, Distribution: c.Distribution, Preload: c.Preload,
		Present: c.Present, Reused: c.Reused, Unverified: c.Unverified, GetBatch: c.GetBatch,
		CheckDeletes: c.CheckDeletes, Seed: c.Seed,
		WarmupSeconds: c.Warmup.Seconds(), DurationSeconds: c.Duration.Seconds(), Operations: c.Operations,
		Compressible: c.Compressible,
	}
	if c.Distribution.Skewed() {
		s.Theta = orDefault(c.Theta)
	}
	if c.Sizes != nil {
		s.ValueSizes = c.Sizes.String()
	}
	return s
}

// Warnings says in whole sentences why the figures may mislead.
func (s *Summary) Warnings() []string {
	var warnings []string
	warn := func(when bool, format string, args ...any) {
		if when {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}
	}
	warn(s.Workload.Loop == "closed",
		"Closed loop: a worker asks nothing while it waits, so latencies are optimistic; measure them in an open loop of, say, %d operations a second.",
		max(uint64(s.OpsPerSecond*2/3), 1))
	unanswered := s.Refused
	if s.Missed != nil {
		unanswered += s.Missed.Count
	}
	share := loadgen.Ratio(unanswered, s.Ops+unanswered)
	warn(share > loadgen.MostUnanswered,
		"%.1f %% of the operations that were due were refused or had not begun at the end; rates and latencies by kind are those of the others.", 100*share)
	warn(s.Workload.Unverified, "The answers were not checked (--verify=false).")
	warnings = append(warnings, s.Generator.Warnings()...)
	return append(warnings, s.Environment.Warnings(s.DataBytes)...)
}
