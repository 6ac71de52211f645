package main

import (
	"math"
	"time"

	"github.com/kvd-db/kvd/bench/judge"
	"github.com/kvd-db/kvd/bench/service/load"
	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// slot is the result of one contestant in a cell in one round.
type slot struct {
	Cell       string  `json:"cell"`
	Contestant string  `json:"contestant"`
	Round      int     `json:"round"`
	Run        outcome `json:"run"`
}

// Turn identifies the slot: see judge.Slot.
func (s slot) Turn() (cell, contestant string) { return s.Cell, s.Contestant }

// outcome is the result of the client's process.
type outcome struct {
	load.Outcome
	// ClientCPU and ServerCPU are the processor time of the whole processes during the
	// measurement. ServerCPU is zero for a contestant without a server.
	ClientCPU time.Duration `json:"clientCPU"`
	ServerCPU time.Duration `json:"serverCPU"`
	// Generator is the part of ClientCPU for requesting one key and checking the
	// answer.
	Generator time.Duration `json:"generator"`
	// ServerBytes is the memory of the server at the end, ServerPeakBytes its peak.
	ServerBytes     int64 `json:"serverBytes"`
	ServerPeakBytes int64 `json:"serverPeakBytes"`

	// Unchecked says that the answers were not checked.
	Unchecked bool `json:"unchecked,omitempty"`

	Overload *loadgen.Overload `json:"overload,omitempty"`
	// Held is how many idle connections stayed open.
	Held *int `json:"held,omitempty"`
}

type metric = judge.Metric[slot]

var (
	rate        = &metric{Unit: "k/s", Scale: 1e3, Of: func(s *slot) float64 { return s.Run.OpsPerSecond() }}
	getP50      = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Gets, s.Run.Gets.Nanos.P50 })
	getP99      = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Gets, s.Run.Gets.Nanos.P99 })
	getP999     = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Gets, s.Run.Gets.Nanos.P999 })
	setP50      = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Sets, s.Run.Sets.Nanos.P50 })
	setP99      = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Sets, s.Run.Sets.Nanos.P99 })
	setP999     = latency(func(s *slot) (loadgen.Kind, int64) { return s.Run.Sets, s.Run.Sets.Nanos.P999 })
	callP50     = latency(callMedian)
	clientCPU   = perKey(func(o *outcome) time.Duration { return o.ClientCPU })
	serverCPU   = perKey(func(o *outcome) time.Duration { return o.ServerCPU })
	bothCPU     = perKey(func(o *outcome) time.Duration { return o.ClientCPU + o.ServerCPU })
	serverBytes = &metric{Unit: "MiB", Scale: 1 << 20, Of: func(s *slot) float64 { return float64(s.Run.ServerBytes) }, Less: true}
	generator   = &metric{Unit: "us", Scale: 1e3, Of: func(s *slot) float64 { return float64(s.Run.Generator) }, Less: true}

	held     = &metric{Unit: "connections", Scale: 1, Of: func(s *slot) float64 { return number(s.Run.Held) }}
	goodput  = ofOverload(&metric{Scale: 1}, func(s *slot, o *loadgen.Overload) float64 { return o.Over.GoodPerSecond() / s.Run.OpsPerSecond() })
	slowdown = ofOverload(&metric{Scale: 1, Less: true}, func(_ *slot, o *loadgen.Overload) float64 {
		return float64(o.Over.Accepted.Nanos.P99) / float64(o.Calm.Accepted.Nanos.P99)
	})
	recovery  = ofOverload(&metric{Unit: "s", Scale: 1e9, Less: true}, func(_ *slot, o *loadgen.Overload) float64 { return float64(o.Recovery) })
	ofBudget  = ofOverload(&metric{Scale: 1, Less: true}, func(s *slot, _ *loadgen.Overload) float64 { return float64(s.Run.ServerPeakBytes) / server.BudgetBytes })
	refusedBy = ofOverload(&metric{Unit: "ms", Scale: 1e6, Less: true}, func(_ *slot, o *loadgen.Overload) float64 {
		if o.Over.Refused.Count == 0 {
			return math.NaN()
		}
		return float64(o.Over.Refused.Nanos.P99)
	})
)

// latency is a figure of one kind of calls; NaN if there were none.
func latency(of func(*slot) (loadgen.Kind, int64)) *metric {
	return &metric{Unit: "us", Scale: 1e3, Less: true, Of: func(s *slot) float64 {
		kind, d := of(s)
		if kind.Count == 0 {
			return math.NaN()
		}
		return float64(d)
	}}
}

// callMedian is the median of a lone caller, which makes one kind of calls.
func callMedian(s *slot) (loadgen.Kind, int64) {
	if s.Run.Gets.Count > 0 {
		return s.Run.Gets, s.Run.Gets.Nanos.P50
	}
	return s.Run.Sets, s.Run.Sets.Nanos.P50
}

func perKey(of func(*outcome) time.Duration) *metric {
	return &metric{Unit: "us", Scale: 1e3, Less: true, Of: func(s *slot) float64 {
		return float64(of(&s.Run)) / float64(s.Run.Keys)
	}}
}

func ofOverload(m *metric, of func(*slot, *loadgen.Overload) float64) *metric {
	m.Of = func(s *slot) float64 {
		if s.Run.Overload == nil {
			return math.NaN()
		}
		return of(s, s.Run.Overload)
	}
	return m
}

func number(n *int) float64 {
	if n == nil {
		return math.NaN()
	}
	return float64(*n)
}

// derive adds the lower bound for a synced set of a lone caller: the sum of the medians
// of an echo and of an append, measured in the same round.
func derive(slots []slot) []slot {
	byRound := func(who string) map[int]*slot {
		found := make(map[int]*slot)
		for i := range slots {
			if s := &slots[i]; s.Cell == lonePutCell && s.Contestant == who {
				found[s.Round] = s
			}
		}
		return found
	}
	echoes, appends := byRound(echo), byRound(appendOnly)
	for _, s := range slots {
		e, a := echoes[s.Round], appends[s.Round]
		if s.Cell != lonePutCell || s.Contestant != ours || e == nil || a == nil {
			continue
		}
		sum := slot{Cell: lonePutCell, Contestant: echoAppend, Round: s.Round}
		sum.Run.Sets.Count = 1
		sum.Run.Sets.Nanos.P50 = e.Run.Sets.Nanos.P50 + a.Run.Sets.Nanos.P50
		slots = append(slots, sum)
	}
	return slots
}
