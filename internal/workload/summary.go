package workload

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Summary is the result of a run. It is one JSON object; durations are in nanoseconds
// unless the name says otherwise.
type Summary struct {
	Workload     Settings    `json:"workload"`
	Target       any         `json:"target,omitempty"` // how the target was configured; filled in by the caller
	Environment  Environment `json:"environment"`      // filled in by the caller
	Seconds      float64     `json:"seconds"`
	Ops          uint64      `json:"ops"`
	OpsPerSecond float64     `json:"opsPerSecond"`
	Put          Kind        `json:"put"`
	Delete       Kind        `json:"delete"`
	Get          Kind        `json:"get"`
	Found        FoundRate   `json:"foundRate"`
	// SlowestSecond is the lowest rate of any whole second, null without one. A value
	// far below the mean indicates stalls that the mean hides.
	SlowestSecond *float64 `json:"slowestSecondOpsPerSecond"`
	// LongestStallNanos is the longest time in which no operation of any worker ended,
	// to within stallResolution.
	LongestStallNanos int64     `json:"longestStallNanos"`
	Generator         Generator `json:"generator"`
	// CPUMicrosPerOp and PeakRSSBytes are those of this process: the generator and an
	// embedded engine, or the generator and a client.
	CPUMicrosPerOp float64 `json:"cpuMicrosPerOp"`
	PeakRSSBytes   int64   `json:"peakRSSBytes"`
	DataBytes      *int64  `json:"dataBytes"` // on disk at the end; null if unknown
	Interrupted    bool    `json:"interrupted"`
	Error          string  `json:"error,omitempty"`
}

// Settings is the Config of a run in the form of the report.
type Settings struct {
	Mix             string       `json:"mix"`
	Loop            string       `json:"loop"` // "closed" or "open"
	OpsPerSecond    uint64       `json:"targetOpsPerSecond,omitempty"`
	Threads         int          `json:"threads"`
	Keys            uint64       `json:"keys"`
	KeyBytes        int          `json:"keyBytes"`
	ValueBytes      int          `json:"valueBytes"`
	FindRate        float64      `json:"findRate"`
	Distribution    Distribution `json:"distribution"`
	Preload         uint64       `json:"preload"`
	Present         uint64       `json:"present,omitempty"`
	GetBatch        int          `json:"getBatch,omitempty"`
	CheckDeletes    bool         `json:"checkDeletes"`
	Seed            uint64       `json:"seed"`
	WarmupSeconds   float64      `json:"warmupSeconds"`
	DurationSeconds float64      `json:"durationSeconds"`
}

// Kind summarizes the operations of one kind.
type Kind struct {
	Count        uint64  `json:"count"`
	OpsPerSecond float64 `json:"opsPerSecond"`
	MeanNanos    int64   `json:"meanNanos"`
	Nanos        Latency `json:"nanos"`
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

// Generator is the cost of the measurement itself.
type Generator struct {
	NanosPerOp int64 `json:"nanosPerOp"`
	// Share is the generator's part of the processor time available to the run. Above a
	// tenth, the figures measure the generator as much as the target.
	Share float64 `json:"share"`
	// LatenessNanos is how late timers woke the workers of an open loop. The latencies
	// include it, though it is not the target's fault.
	LatenessNanos *Latency `json:"latenessNanos"`
}

// maxGeneratorShare is the share above which Warnings mentions the generator.
const maxGeneratorShare = 0.10

func (m *measurement) summarize(elapsed time.Duration, t *totals) *Summary {
	ops := t.ops()
	used := readUsage()
	asked := t.count(kindGet) * uint64(max(m.cfg.GetBatch, 1))
	s := &Summary{
		Workload:     newSettings(m.cfg),
		Seconds:      elapsed.Seconds(),
		Ops:          ops,
		OpsPerSecond: perSecond(ops, elapsed),
		Put:          newKind(&t.latency[kindPut], elapsed),
		Delete:       newKind(&t.latency[kindDelete], elapsed),
		Get:          newKind(&t.latency[kindGet], elapsed),
		Found: FoundRate{
			Nominal: m.cfg.FindRate,
			Known:   ratio(t.getKnown, asked),
			Get:     ratio(t.getFound, asked),
		},
		Generator:         Generator{NanosPerOp: m.cost.Nanoseconds(), Share: m.generatorShare(elapsed, ops)},
		LongestStallNanos: m.stalls.longest.Nanoseconds(),
		PeakRSSBytes:      used.peakRSS,
		DataBytes:         m.lastDiskBytes,
	}
	if m.slowestOfRun.seen {
		s.SlowestSecond = &m.slowestOfRun.rate
	}
	if m.cfg.CheckDeletes {
		found := ratio(t.deleteFound, t.count(kindDelete))
		s.Found.Delete = &found
	}
	if m.cfg.OpsPerSecond > 0 {
		late := newLatency(&t.lateness)
		s.Generator.LatenessNanos = &late
	}
	if ops > 0 {
		s.CPUMicrosPerOp = float64((used.cpu - m.usage.cpu).Microseconds()) / float64(ops)
	}
	return s
}

// generatorShare relates the cost of the generator to the processor time that was
// available: that of all processors, or of as many as there are workers. A closed loop
// cannot use the time in which it waits, so more workers do not make the share smaller.
func (m *measurement) generatorShare(elapsed time.Duration, ops uint64) float64 {
	processors := min(m.cfg.Workers, runtime.GOMAXPROCS(0))
	open := float64(elapsed) * float64(processors)
	if open == 0 {
		return 0
	}
	return float64(m.cost) * float64(ops) / open
}

func newSettings(c *Config) Settings {
	loop := "closed"
	if c.OpsPerSecond > 0 {
		loop = "open"
	}
	return Settings{
		Mix: c.Mix.Name, Loop: loop, OpsPerSecond: c.OpsPerSecond, Threads: c.Workers,
		Keys: c.Keys, KeyBytes: KeyBytes, ValueBytes: c.ValueBytes,
		FindRate: c.FindRate, Distribution: c.Distribution, Preload: c.Preload,
		Present: c.Present, GetBatch: c.GetBatch,
		CheckDeletes: c.CheckDeletes, Seed: c.Seed,
		WarmupSeconds: c.Warmup.Seconds(), DurationSeconds: c.Duration.Seconds(),
	}
}

func newKind(s *histogram.Snapshot, elapsed time.Duration) Kind {
	return Kind{
		Count:        s.Count(),
		OpsPerSecond: perSecond(s.Count(), elapsed),
		MeanNanos:    s.Mean().Nanoseconds(),
		Nanos:        newLatency(s),
	}
}

func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Warnings says in whole sentences why the figures may mislead.
func (s *Summary) Warnings() []string {
	var warnings []string
	warn := func(when bool, format string, args ...any) {
		if when {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}
	}
	warnings = append(warnings, s.Generator.shareWarning()...)
	warn(s.Workload.Loop == "closed",
		"Closed loop: a worker asks nothing while it waits, so latencies are optimistic; measure them in an open loop of, say, %d operations a second.",
		max(uint64(s.OpsPerSecond*2/3), 1))
	warnings = append(warnings, s.Generator.latenessWarning()...)
	return append(warnings, s.Environment.Warnings(s.DataBytes)...)
}

func (g *Generator) shareWarning() []string {
	if g.Share <= maxGeneratorShare {
		return nil
	}
	return []string{fmt.Sprintf("The generator took %.0f %% of the processor time (%d ns an operation), so it limits the result; use larger values, or take the rate for a lower bound.",
		100*g.Share, g.NanosPerOp)}
}

func (g *Generator) latenessWarning() []string {
	if g.LatenessNanos == nil || g.LatenessNanos.P99 <= time.Millisecond.Nanoseconds() {
		return nil
	}
	return []string{fmt.Sprintf("Timers woke the generator up to %v late (p99), which the latencies contain.", time.Duration(g.LatenessNanos.P99))}
}

// Warnings says in whole sentences why the generator may have distorted the figures.
func (g *Generator) Warnings() []string { return append(g.shareWarning(), g.latenessWarning()...) }

// Warnings says in whole sentences why figures for this many bytes of data, if known,
// may mislead on this machine.
func (e *Environment) Warnings(dataBytes *int64) []string {
	var warnings []string
	if dataBytes != nil && e.MemoryBytes > 0 && *dataBytes < e.MemoryBytes/2 {
		warnings = append(warnings, "The data fit into memory, so reads were served by caches more than by the disk.")
	}
	if e.FileSystem == "tmpfs" {
		warnings = append(warnings, "The data lay on tmpfs: no write ever reached a disk.")
	}
	return warnings
}
