package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// slot is a line of the file that --out of compare and service names: the result of one
// contestant in a cell in one round.
type slot struct {
	Cell       string          `json:"cell"`
	Engine     string          `json:"engine"`     // of compare
	Contestant string          `json:"contestant"` // of service
	Round      int             `json:"round"`
	Run        json.RawMessage `json:"run"`
}

// embeddedRun is the result of a slot of compare, as far as the report has it.
type embeddedRun struct {
	Summary struct {
		Seconds           float64           `json:"seconds"`
		Ops               uint64            `json:"ops"`
		OpsPerSecond      float64           `json:"opsPerSecond"`
		Put               loadgen.Kind      `json:"put"`
		Delete            loadgen.Kind      `json:"delete"`
		Get               loadgen.Kind      `json:"get"`
		SlowestSecond     *float64          `json:"slowestSecondOpsPerSecond"`
		LongestStallNanos int64             `json:"longestStallNanos"`
		Generator         loadgen.Generator `json:"generator"`
		CPUMicrosPerOp    float64           `json:"cpuMicrosPerOp"`
		PeakRSSBytes      int64             `json:"peakRSSBytes"`
	} `json:"summary"`
	DiskBytes int64 `json:"diskBytes"`
}

// serviceRun is that of a slot of service.
type serviceRun struct {
	Seconds   float64       `json:"seconds"`
	Keys      uint64        `json:"keys"`
	Gets      loadgen.Kind  `json:"gets"`
	Sets      loadgen.Kind  `json:"sets"`
	ClientCPU time.Duration `json:"clientCPU"`
	ServerCPU time.Duration `json:"serverCPU"`
	Generator time.Duration `json:"generator"` // of ClientCPU, for one key
	Unchecked bool          `json:"unchecked"`
}

// addSlots adds the lines of a step to a result, one cell for each workload and
// contestant.
func addSlots(r *results.Result, s *step, lines io.Reader) error {
	in := json.NewDecoder(lines)
	for {
		var line slot
		if err := in.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", s.file(), err)
		}
		trial, err := line.trial(s.part)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", s.file(), line.Cell, err)
		}
		contestant := line.Engine + line.Contestant
		params := []results.Param{
			{Name: "part", Value: s.part}, {Name: "workload", Value: line.Cell},
			{Name: "store", Value: contestant}, {Name: "durability", Value: s.durabilityOf(contestant)},
		}
		c := r.Cell(params)
		if c == nil {
			c = &results.Cell{Params: params}
			r.Cells = append(r.Cells, c)
		}
		c.Runs = append(c.Runs, &results.Run{Trial: trial})
	}
}

// trial returns the result in the form of kvbench's reports.
func (s *slot) trial(part string) (*loadgen.Trial, error) {
	if part == partEmbedded {
		var run embeddedRun
		if err := json.Unmarshal(s.Run, &run); err != nil {
			return nil, err
		}
		return run.trial(), nil
	}
	var run serviceRun
	if err := json.Unmarshal(s.Run, &run); err != nil {
		return nil, err
	}
	return run.trial(), nil
}

func (r *embeddedRun) trial() *loadgen.Trial {
	s := &r.Summary
	t := &loadgen.Trial{
		Seconds: s.Seconds, Ops: s.Ops, OpsPerSecond: s.OpsPerSecond, SlowestSecond: s.SlowestSecond,
		LongestStallNanos: s.LongestStallNanos, Generator: s.Generator, CPUMicrosPerOp: s.CPUMicrosPerOp, PeakRSSBytes: s.PeakRSSBytes,
		Operations: operations(named{"put", s.Put}, named{"delete", s.Delete}, named{"get", s.Get}),
	}
	if r.DiskBytes > 0 {
		t.DataBytes = &r.DiskBytes
	}
	return t
}

// trial counts keys as operations; calls and keys are the same in the rows of the plan.
func (r *serviceRun) trial() *loadgen.Trial {
	keys, used := float64(r.Keys), r.ClientCPU+r.ServerCPU
	return &loadgen.Trial{
		Seconds: r.Seconds, Ops: r.Keys, OpsPerSecond: loadgen.Share(keys, r.Seconds),
		CPUMicrosPerOp: loadgen.Share(float64(used.Nanoseconds())/1e3, keys), Unverified: r.Unchecked,
		Generator: loadgen.Generator{
			NanosPerOp: r.Generator.Nanoseconds(),
			Share:      loadgen.Share(r.Generator.Seconds()*keys, r.Seconds*float64(runtime.GOMAXPROCS(0))),
		},
		Operations: operations(named{"put", r.Sets}, named{"get", r.Gets}),
	}
}

type named struct {
	name string
	kind loadgen.Kind
}

// operations returns the kinds that have a count.
func operations(kinds ...named) (list []loadgen.Operation) {
	for _, k := range kinds {
		if k.kind.Count > 0 {
			list = append(list, loadgen.Operation{Name: k.name, Kind: k.kind})
		}
	}
	return list
}
