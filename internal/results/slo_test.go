package results

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

func TestObjectivesAreParsed(t *testing.T) {
	all, err := ParseSLOs("p99<5ms, get.p99.9<20ms,read-modify-write.max<1s", []string{"get", "read-modify-write"})
	require.NoError(t, err)
	assert.Equal(t, []SLO{{"", "p99", 5 * time.Millisecond}, {"get", "p99.9", 20 * time.Millisecond}, {"read-modify-write", "max", time.Second}}, all)
	assert.Equal(t, "get.p99.9<20ms", all[1].String())
	for text, says := range map[string]string{
		"": "it has no <", "p99": "it has no <", "p98<1ms": `bounds "p98"`, "walk.p99<1ms": `bounds "walk.p99"`,
		"p99<soon": "invalid duration", "p99<0s": "more than 0", "p99<1ms,": "it has no <",
	} {
		_, err := ParseSLOs(text, []string{"get"})
		assert.ErrorContains(t, err, says, text)
	}
}

// TestRefusedOperationsMissObjectives: a store that refuses the slow operations is not quick.
func TestRefusedOperationsMissObjectives(t *testing.T) {
	quick, never := loadgen.Latency{P50: 10, P99: 1000}, loadgen.Latency{P50: 10, P99: loadgen.Never}
	get := loadgen.Operation{Name: "get", Kind: loadgen.Kind{Count: 90, Nanos: quick, Refused: 10, DueNanos: &never}}
	put := loadgen.Operation{Name: "put", Kind: loadgen.Kind{Refused: 10, DueNanos: &loadgen.Latency{P99: loadgen.Never}}}
	cells := []*Cell{
		{Params: []Param{{"threads", "1"}}, Runs: []*Run{{Trial: &loadgen.Trial{All: quick, AllDue: &never, Operations: []loadgen.Operation{get, put}}}}},
		{Params: []Param{{"threads", "2"}}, Runs: []*Run{{Trial: &loadgen.Trial{All: quick, Operations: []loadgen.Operation{{Name: "put", Kind: loadgen.Kind{Count: 1, Nanos: quick}}}}}}},
	}
	for objective, missed := range map[SLO]string{
		{"", "p50", time.Second}:    "",
		{"", "p99", time.Second}:    "threads 1: p99<1s: p99 has no bound, because the store refused operations, in 1 of 1 runs",
		{"get", "p99", time.Second}: "threads 1: get.p99<1s: get.p99 has no bound, because the store refused operations, in 1 of 1 runs",
		{"put", "p99", time.Second}: "threads 1: put.p99<1s: put.p99 has no bound, because the store refused operations, in 1 of 1 runs",
	} {
		assert.Equal(t, missed, strings.Join(Missed([]SLO{objective}, cells), "; "), objective)
	}
}

func TestMissedObjectivesSayByHowMuch(t *testing.T) {
	run := func(all, get time.Duration) *Run {
		return &Run{Trial: &loadgen.Trial{All: loadgen.Latency{P99: int64(all)}, Operations: []loadgen.Operation{{Name: "get", Kind: loadgen.Kind{Nanos: loadgen.Latency{P99: int64(get)}}}}}}
	}
	objectives := []SLO{{"", "p99", 5 * time.Millisecond}, {"get", "p99", time.Millisecond}, {"put", "p99", time.Hour}}
	slow := &Cell{
		Params: []Param{{"threads", "4"}},
		Runs:   []*Run{run(7*time.Millisecond, time.Microsecond), run(6*time.Millisecond, 0), run(5*time.Millisecond-1, time.Millisecond-1)},
	}
	assert.Equal(t, []string{
		"p99<5ms: p99 was 7ms, 2ms (40 %) too long, in 2 of 3 runs",
		"get.p99<1ms: there were no such operations, in 1 of 3 runs",
		"put.p99<1h0m0s: there were no such operations",
	}, Missed(objectives, []*Cell{slow, {}}), "a cell without runs is not judged")

	quick := &Cell{Params: []Param{{"threads", "1"}}, Runs: []*Run{run(time.Millisecond, 0)}}
	assert.Equal(t, []string{
		"threads 4: p99<5ms: p99 was 7ms, 2ms (40 %) too long, in 2 of 3 runs",
		"threads 4: get.p99<1ms: there were no such operations, in 1 of 3 runs",
		"put.p99<1h0m0s: there were no such operations",
	}, Missed(objectives, []*Cell{slow, quick}), "a cell that does not get has no objective for it")
	assert.Empty(t, Missed(objectives[:1], []*Cell{quick}))
}
