package experiment

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// TestReportsOfEveryPartOfAnExperiment: whatever an interruption leaves can be drawn.
func TestReportsOfEveryPartOfAnExperiment(t *testing.T) {
	ycsb := YCSB()
	for _, w := range []string{"A", "E"} {
		for _, cache := range []string{"4MiB", "8GiB"} {
			ycsb.Cells = append(ycsb.Cells, Cell{Params: CoreParams(w, cache, 1)}, Cell{Params: CoreParams(w, cache, 4)})
		}
	}
	txn := Transactions()
	txn.Cells = []Cell{{Params: TransactionParams("4r2w", 1)}, {Params: TransactionParams("4r2w", 4)}, {Params: TransactionParams("4r2w", 32)}}
	for _, e := range []*Experiment{
		ycsb, txn,
		Reads{Distributions: []workload.Distribution{workload.Uniform, workload.Latest}, Threads: []int{1, 4}}.Experiment(),
		Restart{Keys: []uint64{1000, 2000}, LogBytes: []int64{0, 1 << 20}, Config: workload.Config{ValueBytes: 100}}.Experiment(),
	} {
		for measured := range len(e.Cells) + 1 {
			t.Run(fmt.Sprintf("%s/%d", e.Name, measured), func(t *testing.T) {
				r := &results.Result{Experiment: e.Name}
				for i, c := range e.Cells {
					cell := &results.Cell{Params: c.Params}
					if i < measured {
						cell.Runs = []*results.Run{oneRun(float64(1000 * (i + 1)))}
					}
					r.Cells = append(r.Cells, cell)
				}
				page := e.Report(r)
				assert.NotEmpty(t, page.Lead)
				html := page.HTML()
				assert.NotContains(t, html, "NaN")
				assert.NotContains(t, html, "Inf")
				assert.NotContains(t, html, "%!")
			})
		}
	}
}

// oneRun is a run of ten operations, without a series.
func oneRun(rate float64) *results.Run {
	return &results.Run{
		Trial: &loadgen.Trial{
			Seconds: 1, Ops: 10, OpsPerSecond: rate,
			Operations: []loadgen.Operation{{Name: "get", Kind: loadgen.Kind{Count: 10, OpsPerSecond: rate, MeanNanos: 1000, Nanos: loadgen.Latency{P50: 1000, P99: 3000, Max: 5000}}}},
		},
		Latencies: []results.Latencies{{Operation: "get", Buckets: [][2]uint64{{1000, 9}, {5000, 1}}}},
		Measures: map[string]float64{
			measureFileReads: 12, measureFileBytes: 48_000, measureDiskBytes: 60_000, measureKeys: 1000, measureDataBytes: 1e6, measureCache: 1e5,
			measureOpen: 1e6 + rate, measureFirstRead: 1e3, measureRecords: 5, measureLogBytes: 1e4 + rate, measureHeap: 1e5, measureHeapRead: 2e5 + rate,
		},
	}
}

func TestTheMeasuresOfReadsAreRelatedToTheirNumber(t *testing.T) {
	raw, faster := oneRun(2000), oneRun(1000)
	p := readsOf{store: &results.Cell{Runs: []*results.Run{oneRun(1000), faster}}, raw: &results.Cell{Runs: []*results.Run{raw, oneRun(4000)}}}
	assert.InDelta(t, 0.375, p.share(), 1e-9, "the median of 1/2 and 1/4: of rounds, not of all runs")
	calls, ok := p.perRead(measureFileReads)
	assert.True(t, ok)
	assert.InDelta(t, 1.2, calls, 1e-9)
	_, ok = p.perRead("other")
	assert.False(t, ok)
	assert.Equal(t, 4000, meanRead(raw))
	assert.Equal(t, leastRead, meanRead(&results.Run{}))
}

// TestOurReadsStandBesideTheArticles: those of the same distribution, skew and number of callers.
func TestOurReadsStandBesideTheArticles(t *testing.T) {
	e := Reads{Distributions: []workload.Distribution{workload.Uniform, workload.Zipfian, workload.ScrambledZipfian}, Threads: []int{1, 4}}.Experiment()
	r := new(results.Result)
	for i, c := range e.Cells {
		cell := &results.Cell{Params: c.Params, Runs: []*results.Run{oneRun(float64(1000 * (2 - i%2)))}}
		if cell.Param(paramDistribution) != string(workload.Uniform) {
			cell.Workload = map[string]any{"theta": 0.999}
		}
		r.Cells = append(r.Cells, cell)
	}
	var ours []string
	for _, row := range jitcaskReads(r, readPairs(r)).Tables[0].Rows {
		ours = append(ours, row[2].Text)
	}
	const same = "2k (200 %)"
	assert.Equal(t, []string{"-", same, same, "-", same, same}, ours)
}

func TestWhatAFurtherKeyCosts(t *testing.T) {
	e := Restart{Keys: []uint64{1000, 2000}, LogBytes: []int64{0}, Config: workload.Config{ValueBytes: 100}}.Experiment()
	r := &results.Result{}
	for i, c := range e.Cells {
		run := oneRun(1)
		run.Measures[measureHeap] = float64(50_000 + 20_000*(i/2))
		r.Cells = append(r.Cells, &results.Cell{Params: c.Params, Runs: []*results.Run{run}})
	}
	perKey, ok := newRestarts(r).furtherKey(measureHeap)
	assert.True(t, ok)
	assert.InDelta(t, 20, perKey, 1e-9)
	elsewhere := newRestarts(r).startsElsewhere().Tables[0]
	assert.Equal(t, "1 ms", elsewhere.Rows[0][2].Text)
	assert.Equal(t, "0 B a further key", elsewhere.Rows[1][2].Text)
	assert.Contains(t, elsewhere.Caption, "after a kill, with files of 977 KiB")
}

// TestGainsOfACacheStandBesideCruzDBs: rates differ by the machine, gains less so.
func TestGainsOfACacheStandBesideCruzDBs(t *testing.T) {
	r := new(results.Result)
	for i, cache := range []string{"4MiB", "8GiB"} {
		r.Cells = append(r.Cells, &results.Cell{Params: CoreParams("C", cache, 1), Runs: []*results.Run{oneRun(float64(1000 * (1 + i)))}})
	}
	table := newYCSB(r).cruzDB().Tables[0]
	assert.Equal(t, []string{"workload", "kvd 4MiB", "kvd 8GiB", "large / small", "CruzDB 4MiB", "CruzDB 8GiB", "large / small"}, table.Head)
	var row []string
	for _, e := range table.Rows[0] {
		row = append(row, e.Text)
	}
	assert.Equal(t, []string{"C", "1k (1)", "2k (1)", "2x", "11.6k", "65k", "5.62x"}, row)
}

// TestStartsAreDrawnInTheOrderOfTheLog: a line would go back otherwise.
func TestStartsAreDrawnInTheOrderOfTheLog(t *testing.T) {
	e := Restart{Keys: []uint64{1000}, LogBytes: []int64{0, 1 << 10, 1 << 20}, Config: workload.Config{ValueBytes: 100}}.Experiment()
	r := &results.Result{Version: results.Version}
	for i := range e.Cells {
		log := []float64{500, 300, 700}[i/2]
		r.Cells = append(r.Cells, &results.Cell{Params: e.Cells[i].Params, Runs: []*results.Run{{
			Trial: new(loadgen.Trial), Measures: map[string]float64{measureLogBytes: log, measureOpen: log},
		}}})
	}
	for _, mark := range newRestarts(r).byLog().Panels[0].Marks {
		line := mark.(*chart.Line)
		assert.Equal(t, []float64{300, 500, 700}, line.X)
		assert.Equal(t, line.X, line.Y)
	}
}

// TestStartsWithFewAndManyUnflushedBytesHaveTheSameScale: in a panel each, where two bands can be
// told apart.
func TestStartsWithFewAndManyUnflushedBytesHaveTheSameScale(t *testing.T) {
	e := Restart{Keys: []uint64{1000, 2000}, LogBytes: []int64{0, 1 << 10, 1 << 20}, Config: workload.Config{ValueBytes: 100}}.Experiment()
	r := new(results.Result)
	for i := range e.Cells {
		r.Cells = append(r.Cells, &results.Cell{Params: e.Cells[i].Params, Runs: []*results.Run{{
			Trial: new(loadgen.Trial), Measures: map[string]float64{measureDataBytes: 1e6 * float64(i), measureOpen: 1e6 * float64(1+i)},
		}}})
	}
	panels := newRestarts(r).byData().Panels
	require.Len(t, panels, 2, "the fewest and the most")
	for i, label := range []string{"0 B unflushed", "1 MiB unflushed"} {
		assert.Equal(t, label, panels[i].Y.Label)
		assert.InDelta(t, 1.05*12e6, *panels[i].Y.Max, 1)
		require.Len(t, panels[i].Marks, 2)
		assert.Len(t, panels[i].Marks[0].(*chart.Line).Y, 2, "by the number of keys")
	}
}

func TestTransactionsAreDrawnByThreads(t *testing.T) {
	r := &results.Result{Version: results.Version, Experiment: "txn"}
	for i, threads := range []int{1, 4} {
		run := oneRun(float64(1000 * (i + 1)))
		run.ConflictRate = 0.125 * float64(i)
		r.Cells = append(r.Cells, &results.Cell{Params: TransactionParams("4r2w", threads), Runs: []*results.Run{run}})
	}
	page := Transactions().Report(r)
	assert.Equal(t, "2k transactions/s at best, by 4 threads, of which 12.5 % of the attempts met a conflict.", page.Lead)
	assert.Contains(t, page.HTML(), "<td>4</td><td style=\"--shade:0.45\">2k</td><td>1 µs</td>")
	assert.Equal(t, "Transactions of 4 reads and 2 writes", page.Sections[0].Title)
	assert.Equal(t, "reads", transactionsTitle("reads"))
	panels := page.Sections[0].Figures[0].Panels
	assert.Equal(t, []float64{0, 0.125}, panels[2].Marks[0].(*chart.Line).Y)
}
