package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func TestAReportSaysWhereTheTimeGoesAndWhatTheStoreDid(t *testing.T) {
	for name, where := range map[string][]string{"engine": {"--partitions", "2"}, "server": {"--addr", serve(t)}} {
		ctx, open := endingAfter(t, 4000)
		code, _, stderr := benchUntil(t, ctx, open, append([]string{"run", "--threads", "4", "--keys", "1000", "--value-size", "100",
			"--preload", "1000", "--mix", "BALANCED", "--duration", "1h", "--report", "r"}, where...)...)
		require.Equal(t, exitOK, code, stderr)
		back, err := results.Read("r")
		require.NoError(t, err)
		run := back.Cells[0].Runs[0]
		require.Len(t, run.Stages, 3, name)
		var put *results.Stages
		for i := range run.Stages {
			if run.Stages[i].Operation == "put" {
				put = &run.Stages[i]
			}
			for _, b := range run.Stages[i].Bands {
				assert.Positive(t, b.Nanos.Total())
				assert.Equal(t, name == "server", b.Nanos[1] > 0, "%s: only a server has a network", name)
			}
		}
		require.NotNil(t, put)
		page, err := os.ReadFile(filepath.Join("r", results.ReportFile))
		require.NoError(t, err)
		assert.Contains(t, string(page), "Where the time of a put goes")
		if run.OwnCPU != nil { // the kernel counts in ticks of 10 ms, and a fast machine may need less
			assert.Contains(t, string(page), "processors: this process")
		}
		if name == "server" {
			continue
		}
		assert.Contains(t, string(page), "writes a micro-batch")
		a := run.Counters()
		require.NotNil(t, a)
		assert.Positive(t, a.LogBytes)
		writes := run.Operation("put").Count + run.Operation("delete").Count
		assert.Less(t, a.LogBytes, 400*writes+1<<20, "without the preload")
	}
}

// TestStagesAreThoseOfTheMeasurement: calls before begin are not kept, and begin forgets.
func TestStagesAreThoseOfTheMeasurement(t *testing.T) {
	var s stageSampler
	s.add("put", &kvd.Timings{Engine: time.Second})
	assert.Empty(t, s.stages())
	s.begin()
	s.add("put", &kvd.Timings{ClientQueue: 1, Network: 2, Gate: 4, Inbox: 8, Batch: 16, Engine: 32, LogWrite: 64, Sync: 128, Reply: 256, Return: 512})
	got := s.stages()
	require.Len(t, got, 1)
	assert.Equal(t, results.StagedCall{513, 2, 260, 8, 16, 32, 64, 128}, got[0].Bands[0].Nanos)
	for range stageCalls + 10 {
		s.add("get", &kvd.Timings{Engine: time.Second})
	}
	assert.Len(t, s.calls["get"], stageCalls)
	s.begin()
	assert.Empty(t, s.stages())
	measured(plainTarget{}, true)
	assert.Empty(t, stagesOf(plainTarget{}), "a target that cannot tell")
}

type plainTarget struct{}

func (plainTarget) Put(context.Context, []byte, []byte) error { return nil }
func (plainTarget) Delete(context.Context, []byte) error      { return nil }
func (plainTarget) Get(context.Context, []byte, []byte) ([]byte, bool, error) {
	return nil, false, nil
}
func (plainTarget) Close() error { return nil }

var _ workload.Target = plainTarget{}
