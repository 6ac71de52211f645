package experiment

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// lsmResult has rates that grow with the find rate and the threads, and sizes that grow
// with the key space.
func lsmResult() *results.Result {
	e := LSM{
		Mixes: workload.Mixes[:2], FindRates: []int{10, 90}, Threads: []int{1, 4},
		Thresholds: []Scaled{{100_000, 300}}, KeySpaces: []Scaled{{10_000_000, 30_000}, {1_000_000_000, 3_000_000}},
	}.Experiment()
	r := &results.Result{Experiment: e.Name, Scale: 0.003}
	for _, c := range e.Cells {
		threads, err := strconv.Atoi(c.Params[2].Value)
		if err != nil {
			panic(err)
		}
		size := int64(c.Config.Keys) * 100
		run := &results.Run{Trial: &loadgen.Trial{OpsPerSecond: 1e5 * c.Config.FindRate * float64(threads), DataBytes: &size, Seconds: 1}}
		r.Cells = append(r.Cells, &results.Cell{
			Params: c.Params, Runs: []*results.Run{run},
			Workload: map[string]any{"keys": c.Config.Keys}, Target: map[string]any{"flushKeys": c.Setup.FlushKeys},
		})
	}
	return r
}

func TestLSMTables(t *testing.T) {
	e := LSM{}.Experiment()
	page := e.Report(lsmResult())
	assert.Equal(t, "360k operations/s at best, 10k at worst, 40k in the median of 16 combinations. The parameter with the largest effect on the median is the find rate: 9x.", page.Lead)
	var text bytes.Buffer
	for _, s := range page.Sections {
		for _, table := range s.Tables {
			require.NoError(t, table.WriteText(&text))
		}
	}
	assert.Equal(t, `        mix  find rate  threads  flush at  keys  operations/s   on disk
  PUT_HEAVY       90 %        4      100k   10M          360k  2.86 MiB
  PUT_HEAVY       90 %        4      100k    1G          360k   286 MiB
  GET_HEAVY       90 %        4      100k   10M          360k  2.86 MiB
  GET_HEAVY       90 %        4      100k    1G          360k   286 MiB
  PUT_HEAVY       90 %        1      100k   10M           90k  2.86 MiB
The fastest combinations.

           mix  find rate  threads  flush at  keys  operations/s  on disk
     GET_HEAVY       90 %        4        1M   10M          328k  16.3 GB
  DELETE_HEAVY       90 %        4        1M   10M          319k  21.9 GB
     PUT_HEAVY       50 %        4        1M   10M          204k  23.8 GB
     GET_HEAVY       90 %        1        1M   10M          187k   9.9 GB
      BALANCED       90 %       16        1M   10M          174k  10.1 GB
The fastest of the article, in an hour each on 8 processors.

        mix  find rate  threads  flush at  keys  operations/s   on disk
  GET_HEAVY       10 %        4      100k    1G           40k   286 MiB
  PUT_HEAVY       10 %        1      100k   10M           10k  2.86 MiB
  PUT_HEAVY       10 %        1      100k    1G           10k   286 MiB
  GET_HEAVY       10 %        1      100k   10M           10k  2.86 MiB
  GET_HEAVY       10 %        1      100k    1G           10k   286 MiB
The slowest combinations.

           mix  find rate  threads  flush at  keys  operations/s  on disk
     GET_HEAVY       10 %        1      100k    1G         21.1k        -
     PUT_HEAVY       10 %        1      100k  100M         20.5k        -
  DELETE_HEAVY       10 %        1      100k    1G         20.5k        -
      BALANCED       10 %       64      100k    1G         20.1k        -
      BALANCED       10 %        1      100k  100M         17.5k        -
The slowest of the article.

  parameter      value  combinations  least  median  most  article: median
        mix  PUT_HEAVY             8    10k     65k  360k            54.8k
        mix  GET_HEAVY             8    10k     65k  360k            71.7k
  find rate       10 %             8    10k     25k   40k            48.9k
  find rate       90 %             8    90k    225k  360k            71.3k
    threads          1             8    10k     50k   90k            36.8k
    threads          4             8    40k    200k  360k             101k
   flush at       100k            16    10k     65k  360k            38.5k
       keys        10M             8    10k     65k  360k            94.6k
       keys         1G             8    10k     65k  360k            43.9k
Operations/s. The article's medians are of its 154 recorded runs.

  keys     least    median      most  article: median
   10M  2.86 MiB  2.86 MiB  2.86 MiB          10.5 GB
    1G   286 MiB   286 MiB   286 MiB          73.1 GB
Bytes on disk at the end.

`, text.String())
	assert.Equal(t, "Names of key spaces and thresholds are those of full scale. At scale 0.003, 10M keys are 30k, 100k entries of a memtable are 300, 1G keys are 3M.", page.Sections[0].Text[0])

	boxes := page.Sections[2]
	require.Len(t, boxes.Figures, 4, "one for each parameter that varies")
	assert.Contains(t, boxes.Figures[0].Note[1], "whiskers: 1st to 99th percentile; tick: maximum; dots: single combinations, if there are at most 12.")
	assert.Equal(t, ratesOf(page.Result, paramMix, "PUT_HEAVY"), boxes.Figures[0].Panels[0].Marks[0].(*chart.Boxes).Boxes[0].Dots)
	assert.Equal(t, "number of threads", boxes.Figures[2].X.Label)
	assert.Equal(t, "keys", boxes.Figures[3].X.Label)
	html := page.HTML()
	assert.Contains(t, html, "Throughput by find rate")
	assert.Contains(t, html, "Final size by key space")
	for _, r := range []*results.Result{{}, {Cells: []*results.Cell{{}}}} {
		assert.NotEmpty(t, e.Report(r).HTML(), "pages of nothing can be drawn")
	}
}

// TestValuesThatAreEqualAtAScaleHaveNoFigure: their differences are noise.
func TestValuesThatAreEqualAtAScaleHaveNoFigure(t *testing.T) {
	r := lsmResult()
	for i, c := range r.Cells {
		c.Params[3].Value = []string{"100k", "1M"}[i%2] // both are 300 entries
		c.Runs[0].OpsPerSecond *= float64(1 + 99*(i%2))
	}
	page := LSM{}.Experiment().Report(r)
	boxes := page.Sections[2]
	for _, f := range boxes.Figures {
		assert.NotContains(t, f.Title, "memtables")
	}
	assert.Equal(t, "There is no figure by size of memtables: at this scale 100k, 1M are all 300 entries of a memtable.", boxes.Text[1])
	assert.NotContains(t, page.Lead, "memtables")
	assert.Zero(t, equalAtScale(r, paramKeySpace))
	assert.Zero(t, equalAtScale(r, paramMix), "it has no size")
}

// TestABoxOfManyValuesHasNoDots: they would hide it.
func TestABoxOfManyValuesHasNoDots(t *testing.T) {
	r := new(results.Result)
	for n := range mostDots {
		r.Cells = append(r.Cells, &results.Cell{Params: []results.Param{{Name: paramMix, Value: "PUT_HEAVY"}}, Runs: []*results.Run{oneRun(float64(n + 1))}})
	}
	box := func() *chart.Box {
		return &boxFigure(r, paramMix, []string{"PUT_HEAVY"}).Panels[0].Marks[0].(*chart.Boxes).Boxes[0]
	}
	assert.Len(t, box().Dots, mostDots)
	r.Cells = append(r.Cells, r.Cells[0])
	assert.Empty(t, box().Dots)
	assert.NotContains(t, boxFigure(r, paramMix, []string{"PUT_HEAVY"}).Note[1], "dots")
}

func TestCountsAreWrittenAsInTheArticle(t *testing.T) {
	for n, want := range map[uint64]string{1: "1", 300: "300", 1000: "1k", 1500: "1500", 100_000: "100k", 10_000_000: "10M", 1_000_000_000: "1G"} {
		assert.Equal(t, want, count(n))
	}
}

// TestPublishedCombinationsAreOfTheExperiment: a typing error in a value would hide it.
func TestPublishedCombinationsAreOfTheExperiment(t *testing.T) {
	known := func(param, value string) {
		_, ok := lsmMedians[param][value]
		assert.True(t, ok, "%s %s", param, value)
	}
	for _, c := range append(append([]lsmRank(nil), lsmBest...), lsmWorst...) {
		known(paramMix, c.mix)
		known(paramFind, c.find)
		known(paramThreads, c.threads)
		known(paramThreshold, c.threshold)
		known(paramKeySpace, c.keys)
	}
	for keys := range lsmSizes {
		known(paramKeySpace, keys)
	}
}
