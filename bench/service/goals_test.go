package main

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rated returns one slot a round with these rates of gets, and latencies that go with
// them.
func rated(cell, who string, perSecond ...int) (slots []slot) {
	for i, n := range perSecond {
		s := slot{Cell: cell, Contestant: who, Round: i}
		s.Run.Seconds, s.Run.Keys = 1, uint64(n)
		s.Run.Gets.Count = uint64(n)
		s.Run.Gets.Nanos.P50, s.Run.Gets.Nanos.P99 = 1e9/int64(n), 10e9/int64(n)
		s.Run.ClientCPU, s.Run.ServerCPU = time.Second, time.Second
		slots = append(slots, s)
	}
	return slots
}

func TestTheFinalTableSaysWhatIsReached(t *testing.T) {
	cell := getCell(256)
	slots := rated(cell, ours, 300_000, 30_000, 600_000) // the machine is ten times slower in the second round
	slots = append(slots, rated(cell, rueidis, 100_000, 10_000, 100_000)...)
	slots = append(slots, rated(cell, rueidis100, 200_000, 20_000, 200_000)...)
	slots = append(slots, rated(cell, rueidis20, 300_000, 30_000, 300_000)...)
	slots = append(slots, rated(cell, ours4, 200_000, 20_000, 200_000)...)
	var out bytes.Buffer
	require.NoError(t, printVerdicts(&out, slots, []string{cell, overloadCell}))
	assert.Regexp(t, `get, 256 callers +rueidis +100\.0 k/s +3\.00x \(3\.00-6\.00\) +3\.00x +2\.00x \(2\.00-2\.00\) +>= 2\.2x +yes`, out.String())
	assert.Regexp(t, `get, 256 callers, p99 +rueidis +100\.0 us +0\.33x \(0\.17-0\.33\) +- +0\.50x \(0\.50-0\.50\) +<= 0\.5x +yes`, out.String())
	assert.Regexp(t, `get, 256 callers, tuned +rueidis-20us +300\.0 k/s +1\.00x .* >= 1\.5x +NO`, out.String())
	assert.Contains(t, out.String(), "NOT MEASURED: get, 256 callers, gRPC only\n")
	assert.Contains(t, out.String(), "NOT MEASURED: overload, back to normal\n")

	assert.NotContains(t, out.String(), "set sync", "nobody wanted it")

	out.Reset()
	require.NoError(t, printSlots(&out, slots))
	assert.Regexp(t, `rueidis +100\.0 +3\.00 \(3\.00-6\.00\) +10/100/- +- +10\.00 +10\.00`, out.String())
	assert.NotContains(t, out.String(), "NaN")
}

func TestALoneSetIsComparedWithAnEchoAndAnAppendOfItsRound(t *testing.T) {
	lone := func(who string, round int, p50 time.Duration) slot {
		s := slot{Cell: lonePutCell, Contestant: who, Round: round}
		s.Run.Sets.Count, s.Run.Sets.Nanos.P50 = 1, int64(p50)
		return s
	}
	slots := derive([]slot{
		lone(ours, 0, 330), lone(echo, 0, 100), lone(appendOnly, 0, 200),
		lone(ours, 1, 3000), lone(appendOnly, 1, 2000), lone(echo, 1, 1000),
		lone(ours, 2, 1), lone(echo, 2, 1), // without an append
	})
	require.Len(t, slots, 10)
	for i := range goals {
		if g := &goals[i]; g.Row == "lone set sync, p50" && slices.Contains(g.peers, echoAppend) {
			v, ok := g.judge(slots)
			require.True(t, ok)
			assert.InDelta(t, 1.05, v.Figure.Median, 1e-9)
			assert.True(t, v.Reached)
			return
		}
	}
	t.Fatal("the goal is gone")
}
