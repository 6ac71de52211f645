package main

import (
	"math/rand/v2"
	"sync"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// One call in stageEvery has its stages measured, and at most stageCalls of an operation
// are kept, which are a sample of all.
const (
	stageEvery = 16
	stageCalls = 1 << 16
)

// stageSampler asks a store where the time of some of the calls went. Safe for concurrent
// use.
type stageSampler struct {
	mu    sync.Mutex
	seen  map[string]int
	calls map[string][]results.StagedCall
}

// begin forgets what was measured, when a measurement begins.
func (s *stageSampler) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.calls = make(map[string]int), make(map[string][]results.StagedCall)
}

// sample decides whether to measure a call.
func (*stageSampler) sample() bool { return rand.Uint32()%stageEvery == 0 }

// add keeps a call that succeeded.
func (s *stageSampler) add(operation string, t *kvd.Timings) {
	call := results.StagedCall{
		t.ClientQueue.Nanoseconds() + t.Return.Nanoseconds(), t.Network.Nanoseconds(), t.Gate.Nanoseconds() + t.Reply.Nanoseconds(),
		t.Inbox.Nanoseconds(), t.Batch.Nanoseconds(), t.Engine.Nanoseconds(), t.LogWrite.Nanoseconds(), t.Sync.Nanoseconds(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		return // a preload
	}
	s.seen[operation]++
	if calls := s.calls[operation]; len(calls) < stageCalls {
		s.calls[operation] = append(calls, call)
	} else if n := rand.IntN(s.seen[operation]); n < stageCalls {
		calls[n] = call
	}
}

// stages returns where the time went since begin.
func (s *stageSampler) stages() []results.Stages {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []results.Stages
	for _, operation := range workload.Operations() {
		if calls := s.calls[operation]; len(calls) > 0 {
			all = append(all, results.NewStages(operation, calls))
		}
	}
	return all
}
