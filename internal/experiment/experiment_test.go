package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a correct store whose operations take a time that depends on its partitions.
type store struct {
	mu     sync.Mutex
	values map[string][]byte
	takes  time.Duration
	spoil  bool
}

func (s *store) Put(_ context.Context, key, value []byte) error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[string(key)] = bytes.Clone(value)
	return nil
}

func (s *store) Delete(_ context.Context, key []byte) error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, string(key))
	return nil
}

func (s *store) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	value, found := s.values[string(key)]
	if found && s.spoil {
		value = append([]byte{1}, value...)
	}
	return bytes.Clone(value), found, nil
}

func (s *store) DiskBytes() (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(1000 * len(s.values)), nil
}

func (s *store) Close() error { return nil }

func small() *Experiment {
	return Partitions{
		Mixes: workload.Mixes[:2], Partitions: []int{1, 4}, Threads: []int{1, 4},
		Config: workload.Config{Keys: 1000, ValueBytes: 40, FindRate: 0.5, Distribution: workload.Uniform, Seed: 1, Duration: 3 * time.Second, Interval: time.Second},
	}.Experiment()
}

// opener makes stores in which a partition serves an operation of a thread in 40 ms, and
// notes the order in which they are made and whether each was closed.
func opener(order *[]string, spoil bool) func(Setup) (Store, error) {
	open := 0
	return func(s Setup) (Store, error) {
		if open > 0 {
			return Store{}, errors.New("the store before is still open")
		}
		open++
		*order = append(*order, strconv.Itoa(s.Partitions))
		return Store{
			Target: &store{values: make(map[string][]byte), takes: 40 * time.Millisecond / time.Duration(s.Partitions), spoil: spoil},
			Info:   s, Activity: func() any { return s.Partitions },
			Close: func() error { open--; return nil },
		}, nil
	}
}

func TestPartitionsAreMeasuredInTurnsAndDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := small()
		require.Len(t, e.Cells, 8)
		var order []string
		var progress []Progress
		r, err := e.Run(t.Context(), Options{
			Runs: 2, Scale: 0.1, Environment: loadgen.Environment{GOMAXPROCS: 4}, Open: opener(&order, false), Progress: func(p Progress) { progress = append(progress, p) },
		})
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat("1144", 4), strings.Join(order, ""), "every cell once, then every cell again")
		for _, c := range r.Cells {
			require.Len(t, c.Runs, 2)
			assert.Positive(t, *c.Runs[0].DataBytes)
			assert.Len(t, c.Runs[0].Series, 3)
		}
		assert.Len(t, progress, 16*4, "a line at the beginning of each run, and one a second")
		assert.Zero(t, progress[0].Left)
		assert.InDelta(t, float64(45*time.Second), float64(progress[4].Left), float64(time.Second), "15 of 16 runs of three seconds")

		page := e.Report(r)
		assert.Contains(t, page.Lead, "4 partitions against 1")
		// A worker does up to one operation more or less than 300 in a run.
		const gain = `\+(29[6-9]|30[0-4]) %`
		assert.Regexp(t, `PUT_HEAVY `+gain, page.Lead)
		g := newGrid(r)
		threads, rate := g.best("GET_HEAVY", 4)
		assert.Equal(t, 4, threads)
		assert.InDelta(t, 400, rate, 4)
		html := page.HTML()
		for _, says := range []string{"PUT_HEAVY: threads", "Throughput against final size", "The runs here are too short to compare that.", "(36.9)", "scaled by 0.1",
			"PUT_HEAVY: partitions", "ideal, up to 4 processors", "% of ideal)", "PUT_HEAVY, 4 partitions, 4 threads"} {
			assert.Contains(t, html, says)
		}
		var text bytes.Buffer
		require.NoError(t, WriteTables(&text, page))
		assert.Regexp(t, `GET_HEAVY +(99(\.\d)?|100(\.\d)?) \(4\) +(39[89]|40[012]) \(4\), `+gain, text.String())
	})
}

// TestTheSlowestSecondOfAShortRunSaysNothing: a longer one has it, and a figure of its
// surroundings.
func TestTheSlowestSecondOfAShortRunSaysNothing(t *testing.T) {
	section := func(seconds int) report.Section {
		run := &results.Run{Trial: &loadgen.Trial{Seconds: float64(seconds), OpsPerSecond: 100}}
		for n := range seconds {
			rate := 100.0
			if n == 1 {
				rate = 25
			}
			run.Series = append(run.Series, results.Second{At: float64(n + 1), OpsPerSecond: rate})
		}
		cell := &results.Cell{Params: []results.Param{{Name: paramMix, Value: "PUT_HEAVY"}, {Name: paramPartitions, Value: "16"}, {Name: paramThreads, Value: "32"}}, Runs: []*results.Run{run}}
		return newGrid(&results.Result{Cells: []*results.Cell{cell}}).slowest()
	}
	short := section(4)
	assert.Contains(t, short.Text[0], "too short")
	assert.Len(t, short.Figures, 2)
	long := section(10)
	assert.Contains(t, long.Text[0], "did 25 % of its run's median")
	require.Len(t, long.Figures, 3)
	assert.Equal(t, "The same, around its slowest second", long.Figures[1].Title)
}

// TestTheIdealBendsAtTheNumberOfProcessors: also if no store has as many partitions.
func TestTheIdealBendsAtTheNumberOfProcessors(t *testing.T) {
	r := &results.Result{Environment: loadgen.Environment{GOMAXPROCS: 2}}
	for _, partitions := range []string{"1", "4"} {
		r.Cells = append(r.Cells, &results.Cell{
			Params: []results.Param{{Name: paramMix, Value: "BALANCED"}, {Name: paramPartitions, Value: partitions}, {Name: paramThreads, Value: "1"}},
			Runs:   []*results.Run{{Trial: &loadgen.Trial{OpsPerSecond: 100}}},
		})
	}
	marks := newGrid(r).gain("BALANCED").Panels[0].Marks
	ideal := marks[len(marks)-1].(*chart.Reference)
	assert.Equal(t, []float64{1, 2, 4}, ideal.X)
	assert.Equal(t, []float64{100, 200, 200}, ideal.Y)
}

// TestTheArticleIsDrawnBelowOurRates: at all its numbers between our least and most, by lines of
// the same series.
func TestTheArticleIsDrawnBelowOurRates(t *testing.T) {
	r := new(results.Result)
	for _, mix := range []string{"BALANCED", "OTHER"} {
		for _, partitions := range []string{"2", "16"} {
			for _, threads := range []string{"4", "32"} {
				r.Cells = append(r.Cells, &results.Cell{
					Params: []results.Param{{Name: paramMix, Value: mix}, {Name: paramPartitions, Value: partitions}, {Name: paramThreads, Value: threads}},
					Runs:   []*results.Run{oneRun(100)},
				})
			}
		}
	}
	g := newGrid(r)
	scaling := g.scaling("BALANCED").Panels
	require.Len(t, scaling, 3, "our rates, the article's, our p99")
	assert.Equal(t, []chart.Mark{
		&chart.Line{Series: 1, X: []float64{4, 8, 16, 32}, Y: []float64{128.3e3, 159e3, 175e3, 172.8e3}},
	}, scaling[1].Marks, "the article has no 2 partitions")
	gain := g.gain("BALANCED").Panels
	require.Len(t, gain, 2)
	assert.Equal(t, []chart.Mark{
		&chart.Line{Series: 0, X: []float64{4, 8, 16}, Y: []float64{91.3e3, 104.5e3, 128.3e3}},
		&chart.Line{Series: 1, X: []float64{4, 8, 16}, Y: []float64{100.4e3, 126.6e3, 172.8e3}},
	}, gain[1].Marks)
	cut := g.overview().Figures[0].Panels
	require.Len(t, cut, 2)
	assert.Len(t, cut[1].Marks, 1, "of the mix that the article has")
	assert.Len(t, g.gain("OTHER").Panels, 1)
}

// TestAResultIsDrawnWithoutItsRun: what the sections need is in the file.
func TestAResultIsDrawnWithoutItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, dir := small(), t.TempDir()
		var order []string
		r, err := e.Run(t.Context(), Options{Runs: 1, Scale: 1, Open: opener(&order, false), Progress: func(Progress) {}})
		require.NoError(t, err)
		page := e.Report(r).HTML()
		require.NoError(t, results.Write(dir, r, nil))
		back, err := results.Read(dir)
		require.NoError(t, err)
		assert.Equal(t, page, (Partitions{}).Experiment().Report(back).HTML())
	})
}

func TestAWrongAnswerEndsAnExperiment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		r, err := small().Run(t.Context(), Options{Runs: 2, Open: opener(&order, true), Progress: func(Progress) {}})
		require.ErrorIs(t, err, workload.ErrWrongAnswer)
		assert.ErrorContains(t, err, "mix PUT_HEAVY, partitions 1, threads 1: ")
		assert.Len(t, order, 1)
		require.Len(t, r.Cells[0].Runs, 1)
		assert.NotEmpty(t, r.Cells[0].Runs[0].Error)
		assert.Contains(t, small().Report(r).HTML(), "so its figures mean nothing", "what there is can be drawn")
	})
}

func TestACancelledExperimentKeepsWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		r, err := small().Run(ctx, Options{Runs: 1, Open: opener(&order, false), Progress: func(p Progress) {
			if p.Run == 2 && p.Sample != nil {
				cancel()
			}
		}})
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, order, 2)
		assert.True(t, r.Cells[1].Runs[0].Interrupted)
		assert.NotEmpty(t, small().Report(r).HTML())
	})
}

func TestPagesOfNothingCanBeDrawn(t *testing.T) {
	for _, r := range []*results.Result{{}, {Cells: []*results.Cell{{}}}} {
		assert.NotEmpty(t, small().Report(r).HTML())
	}
}

func TestPublishedRates(t *testing.T) {
	for _, mix := range workload.Mixes {
		for _, partitions := range []int{1, 4, 8, 16} {
			rate, ok := publishedRate(mix.Name, partitions, 4)
			assert.True(t, ok)
			assert.Positive(t, rate)
		}
	}
	rate, ok := publishedRate("PUT_HEAVY", 16, 32)
	assert.True(t, ok)
	assert.Equal(t, 33.1, rate)
	for _, other := range []struct {
		mix                 string
		partitions, threads int
	}{{"OTHER", 1, 1}, {"BALANCED", 2, 1}, {"BALANCED", 1, 64}} {
		_, ok := publishedRate(other.mix, other.partitions, other.threads)
		assert.False(t, ok, fmt.Sprint(other))
	}
}
