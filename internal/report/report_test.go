package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

func testRun(rate float64) *results.Run {
	data := int64(2 << 30)
	r := &results.Run{
		Trial: &loadgen.Trial{Seconds: 20, Ops: uint64(20 * rate), OpsPerSecond: rate, DataBytes: &data,
			Operations: []loadgen.Operation{{Name: "get", Kind: loadgen.Kind{Count: uint64(20 * rate), OpsPerSecond: rate}}}},
		Latencies: []results.Latencies{{Operation: "get", Buckets: [][2]uint64{{1000, 900}, {2000, 99}, {5e6, 1}}}},
	}
	for i := range 20 {
		at := rate
		if i == 7 {
			at = rate / 10
		}
		n := int64(i) << 20
		r.Series = append(r.Series, results.Second{At: float64(i + 1), OpsPerSecond: at, Bytes: &n, Heat: [][2]uint64{{10, 5}, {12, 900}}})
	}
	return r
}

func testResult() *results.Result {
	return &results.Result{
		Version: 1, Experiment: "run", Command: []string{"kvbench", "run", "<script>"}, Scale: 1,
		Environment: loadgen.Environment{Commit: "0123456789abcdef", CPU: "a <b> processor", MemoryBytes: 1 << 30, FileSystem: "ext4"},
		Cells: []*results.Cell{{Params: []results.Param{{Name: "mix", Value: "<BALANCED>"}},
			Runs: []*results.Run{testRun(1000), testRun(1010), testRun(1020)}}},
	}
}

func TestAPageIsWellFormedAndNeedsNothingElse(t *testing.T) {
	r := testResult()
	p := Page{Title: "a & b", Lead: "fast <enough>", Result: r, Sections: append(Cells(r), Section{
		Title: "table", Text: []string{"<p>"}, Tables: []*Table{{Prose: true, Caption: "c", Head: []string{"a", "b"}, Rows: [][]Entry{
			{Words("x"), Figure("1", 1)}, {Words("y"), Figure("2", 2)},
		}}},
	})}
	page := p.HTML()
	assert.NotContains(t, page, "<script>")
	assert.NotContains(t, page, "<enough>")
	assert.NotContains(t, page, "src=")
	assert.NotContains(t, page, "href=")
	assert.NotContains(t, page, "url(")
	assert.NotContains(t, page, "ZgotmplZ", "the template found something unsafe")
	assert.Equal(t, 1, strings.Count(page, `style="--shade:0.45"`), "the best of a column")
	assert.Contains(t, page, `<table class="prose">`, "its words wrap")
	assert.Equal(t, 3, strings.Count(page, "<div class=\"figure full\"><svg "))
	assert.Equal(t, 3, strings.Count(page, "<div class=\"figure slim\"><svg "), "a narrow window shows it in place of the full one")
	assert.Contains(t, page, "under a third of the median rate")

	d := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`<meta[^>]*>|<!doctype html>|<br>`).ReplaceAllString(page, "")))
	d.Strict = true
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
}

// TestAPageIsAlsoTextAndPictures: with the same words and tables, and each figure as a file.
func TestAPageIsAlsoTextAndPictures(t *testing.T) {
	r := testResult()
	p := Page{Title: "a | b", Lead: "fast <enough>", Result: r, Sections: append(Cells(r), Section{
		Title: "empty", Figures: []*chart.Figure{{Title: "The last!", Panels: []chart.Panel{{}}}},
	})}
	files := p.Files()
	require.Len(t, files, 2+4)
	assert.Equal(t, p.HTML(), string(files[results.ReportFile]))
	assert.Contains(t, string(files["figure-01-throughput-and-files-over-time.svg"]), "<style>")
	assert.Contains(t, files, "figure-04-the-last-.svg")

	text := string(files[results.TextFile])
	for _, says := range []string{
		"# a \\| b\n\nfast &lt;enough>\n", "- ✓ Every answer was checked, and all were right.\n", "## mix &lt;BALANCED>\n",
		"| operation | count | ops/s |", "| :--- | ---: | ---: |", "| get | 20.2k | 1.01k |", "- machine: a &lt;b> processor",
	} {
		assert.Contains(t, text, says)
	}
	assert.NotContains(t, text, "## empty", "it has no words")
}

// TestFiguresOfALongRunAreBounded: a day has no more points than a few minutes, and hides neither a
// stall nor an operation.
func TestFiguresOfALongRunAreBounded(t *testing.T) {
	const day = 24 * 3600
	r := testResult()
	c := r.Cells[0]
	run := c.Runs[0]
	c.Runs, run.Series = []*results.Run{run}, nil
	heatOfASecond := [][2]uint64{{10, 5}, {12, 900}} // of each second
	for row := range uint64(50) {
		heatOfASecond = append(heatOfASecond, [2]uint64{20 + row, 1})
	}
	for i := range day {
		s := results.Second{At: float64(i + 1), OpsPerSecond: 1000, Heat: heatOfASecond}
		if i == 40_000 {
			s.OpsPerSecond = 1
		}
		share := 0.25
		s.OwnCPU, s.OtherCPU = &share, &share
		s.Store = &results.StoreState{Log: uint64(i), Put: 10, Written: 20}
		run.Series = append(run.Series, s)
	}
	html := (&Page{Title: "long", Result: r, Sections: Cells(r)}).HTML()
	assert.Less(t, len(html), 10<<20)
	assert.Contains(t, html, "The run is long: each column is of 288 seconds.")
	assert.Contains(t, html, "under a third of the median rate", "of one second")

	heat := HeatMap(r, c, run).Panels[0].Marks[0].(*chart.Heat)
	assert.Len(t, heat.Count, heatColumns)
	assert.Equal(t, 288*5.0, heat.Count[0][0])
	assert.Equal(t, 288.0, heat.Count[heatColumns-1][20-10], "and the last column is whole")
	assert.InDelta(t, day, heat.X[len(heat.X)-1], 0)
	line := OverTime(r, c, run).Panels[0].Marks[1].(*chart.Line)
	assert.InDelta(t, 1, slices.Min(line.Low), 0)
	assert.InDelta(t, 1000-999.0/72, slices.Min(line.Y), 0.01)
	short, seconds := condensed(testRun(1), 20)
	assert.Equal(t, 1, seconds)
	assert.Len(t, short.Series, 20)
}

func TestTrustNamesEveryReasonForDoubt(t *testing.T) {
	for _, c := range Trust(testResult()) {
		assert.True(t, c.OK, c.Text)
	}
	r := testResult()
	r.Scale, r.Environment.FileSystem, r.Environment.Commit, r.Environment.MemoryBytes = 0.1, "tmpfs", "abc+dirty", 1<<40
	bad := testRun(2000)
	bad.Seconds, bad.Error, bad.Interrupted, bad.Unverified = 2, "disk on fire", true, true
	bad.Generator = loadgen.Generator{Share: 0.3, LatenessNanos: &loadgen.Latency{P99: 5e6}}
	own, other := 0.95, 0.305
	bad.Late, bad.OwnCPU, bad.OtherCPU = &loadgen.Late{Busy: bad.Ops / 4, Woken: bad.Ops / 20}, &own, &other
	bad.Trial.Operations = append(bad.Trial.Operations, loadgen.Operation{Name: "put", Kind: loadgen.Kind{Count: 99}})
	bad.Ops, bad.Refused, bad.Missed = bad.Ops*8/10, bad.Ops/10, &loadgen.Kind{Count: bad.Ops / 10}
	r.Cells[0].Target = map[string]any{"kind": "server"}
	r.Environment.Governor, r.Environment.SyncNanos = "powersave", 3000
	r.Cells[0].Runs = []*results.Run{bad, testRun(1000)}
	var all []string
	for _, c := range Trust(r) {
		assert.False(t, c.OK, c.Text)
		all = append(all, c.Text)
	}
	for _, says := range []string{"disk on fire", "not checked", "1 run interrupted", "2 of 3 runs", "differ by up to 66.7 %", "30 % of the processor", "5 ms late",
		"began up to 5 % of the operations", "25 % of the operations waited", "Up to 20 % of the operations that were due were refused or never began", "generator used 95 %", "up to 30.5 % of the processors (the server", "took only 3 µs", "powersave",
		"2 s are short", "scaled by 0.1", "fit into memory", "tmpfs", "changes that no commit has", "Only 99 of the operation put in a run"} {
		assert.Contains(t, strings.Join(all, "\n"), says)
	}
	r = testResult()
	r.Cells[0].Runs = r.Cells[0].Runs[:1]
	for _, c := range Trust(r) {
		assert.NotContains(t, c.Text, "agree", "one run agrees with nothing")
	}
	for _, c := range Trust(&results.Result{}) {
		assert.NotEmpty(t, c.Text, "also without cells")
		assert.NotContains(t, c.Text, "Every answer", "there was none")
	}
}

func TestAPageOfManyCellsSaysWhatEachTook(t *testing.T) {
	r := testResult()
	own, other := 0.25, 0.5
	fast := testRun(5000)
	fast.Stages = []results.Stages{results.NewStages("get", []results.StagedCall{{1: 1000, 5: 3000}})}
	fast.Activity, fast.OwnCPU, fast.OtherCPU = &results.Activity{OpsPerWriteBatch: 7.5, DiskWrittenBytes: 1 << 20}, &own, &other
	r.Cells = append(r.Cells, &results.Cell{Params: []results.Param{{Name: "mix", Value: "fast"}}, Runs: []*results.Run{fast}})
	page := Page{Title: "t", Result: r}
	html := page.HTML()
	assert.Contains(t, html, "What it took")
	assert.Contains(t, html, "the fastest cell: mix fast")
	assert.Contains(t, html, "Where the time of a get goes")
	assert.Contains(t, html, "<tr><td>fast</td><td>7.5</td></tr>", "no columns of zeros")
	assert.Contains(t, html, "The median run of each cell: writes a micro-batch. What was 0 in all of them is left out.")
	assert.Contains(t, html, "<tr><td>fast</td><td>0 B</td><td>1 MiB</td><td>25 %</td><td>50 %</td></tr>")
	assert.Contains(t, html, "over p99.9: 4 µs")
	assert.Empty(t, page.Sections, "the page itself is not changed")

	r.Cells = r.Cells[:1]
	assert.NotContains(t, page.HTML(), "What it took")
}

func TestTailsEndAtTheLastOperation(t *testing.T) {
	line := Tail(&testRun(1).Latencies[0], 0)
	assert.Zero(t, line.X[0])
	assert.EqualValues(t, 1000, line.Y[0])
	assert.InDelta(t, 0.999, line.X[len(line.X)-1], 0.0001)
	assert.IsIncreasing(t, line.X)
	assert.IsNonDecreasing(t, line.Y)
}

func TestStallsAreShaded(t *testing.T) {
	r := testResult()
	f := OverTime(r, r.Cells[0], r.Cells[0].Runs[0])
	var shades []*chart.Shade
	for _, m := range f.Panels[0].Marks {
		if s, ok := m.(*chart.Shade); ok {
			shades = append(shades, s)
		}
	}
	require.Len(t, shades, 1)
	assert.Equal(t, chart.Shade{From: 7, To: 8, Name: shades[0].Name}, *shades[0])
}

func TestADiffSaysWhatDiffers(t *testing.T) {
	a, b := testResult(), testResult()
	same := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b))
	assert.Contains(t, same.Lead, "No difference in 1 rate")
	assert.NotContains(t, same.HTML(), "ZgotmplZ")

	for i, micros := range []float64{3, 3.01, 3.02} {
		a.Cells[0].Runs[i].CPUMicrosPerOp, b.Cells[0].Runs[i].CPUMicrosPerOp = micros, 1.25*micros
	}
	dearer := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b))
	assert.Contains(t, dearer.Lead, "No difference in 1 rate beyond the spread of the runs. 1 of 1 latencies and costs worse, most CPU an operation (+25.0 %)")

	assert.Contains(t, dearer.HTML(), "<td>3.01 µs</td>")

	for i, rate := range []float64{800, 805, 811} {
		b.Cells[0].Runs[i] = testRun(rate)
	}
	b.Environment.CPU, b.Environment.FileSystem, b.Scale = "another", "xfs", 0.5
	worse := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b))
	assert.Contains(t, worse.Lead, "1 of 1 rate worse, most mix <BALANCED> (-20.")
	assert.Contains(t, worse.Lead, "different machines: another processor, file system.")
	assert.Contains(t, worse.Lead, "different scales: 1 and 0.5.")
	for _, says := range []string{"b against a", "closed loop; 3 runs of 20 s"} {
		assert.Contains(t, worse.HTML(), says)
	}
	better := Diff(b, a, [2]string{"b", "a"}, mustCompare(t, b, a))
	assert.Contains(t, better.Lead, "1 of 1 rate better")
}

// TestADiffSaysWhatWasNotCompared: and which settings differ, and that a run did nothing.
func TestADiffSaysWhatWasNotCompared(t *testing.T) {
	a, b := testResult(), testResult()
	a.Cells = append(a.Cells, &results.Cell{Params: []results.Param{{Name: "mix", Value: "other"}}, Runs: a.Cells[0].Runs})
	b.Cells[0].Target = map[string]any{"batchOps": 16.0}
	a.Cells[0].Target = map[string]any{"batchOps": 0.0}
	b.Cells[0].Runs[2].OpsPerSecond = 0
	p := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b))
	assert.Contains(t, p.Lead, "The stores had other settings: batchOps. 1 combination not compared.")
	assert.Contains(t, p.Lead, "1 of 1 rate worse")
	html := p.HTML()
	for _, says := range []string{"<td>mix other</td><td>only the first has it</td>", "<td>batchOps</td><td>0</td><td>16</td>", "worse (no operation in 0 of 3 before, in 1 of 3 after)", "get, a", "get, b"} {
		assert.Contains(t, html, says)
	}
	for _, r := range b.Cells[0].Runs {
		r.OpsPerSecond = 0
	}
	assert.NotContains(t, Diff(b, a, [2]string{"b", "a"}, mustCompare(t, b, a)).HTML(), "NaN")
}

// TestAForestIsNotAsWideAsItsWidestInterval: or the other rows could not be read.
func TestAForestIsNotAsWideAsItsWidestInterval(t *testing.T) {
	row := func(low, ratio, high float64) results.Difference {
		return results.Difference{Ratio: ratio, Low: low, High: high, Values: 3}
	}
	for _, c := range []struct {
		rows      []results.Difference
		low, high float64
	}{
		{nil, -0.2, 0.2},
		{[]results.Difference{row(0.01, 1.02, 50)}, -0.2, 0.2},
		{[]results.Difference{row(0.8, 0.85, 0.9), row(0.01, 1.02, 50)}, -0.3, 0.3},
		{[]results.Difference{row(1.5, 1.8, 2)}, -1, 1.6},
		{[]results.Difference{row(math.Inf(1), math.Inf(1), math.Inf(1))}, -1, 10},
	} {
		low, high := forestRange(c.rows)
		assert.InDelta(t, c.low, low, 1e-9)
		assert.InDelta(t, c.high, high, 1e-9)
	}
	svg := forest("t", []results.Difference{row(0.5, 0.99, 1.1), row(0.95, 1, 3)}, nil).SVG()
	assert.Equal(t, 2+2, strings.Count(svg, `<path class="m s7"`), "the estimates, and arrows at the ends that are cut off")
	assert.Equal(t, "+0.0 %", signed(0.9999))
	wide, narrow := row(0.01, 1.02, 50), row(0.9, 1, 11)
	assert.Equal(t, "-99.0 to over +1000.0 %", intervalText(&wide))
	assert.Equal(t, "-10.0 to +1000.0 %", intervalText(&narrow))
}

// TestADiffOfFewRunsKnowsNoSpread: one run each has no interval and no spread, which is not 0.
func TestADiffOfFewRunsKnowsNoSpread(t *testing.T) {
	for runs, spread := range map[int]string{1: "not known", 2: `0\.7\d* %`} {
		a, b := testResult(), testResult()
		a.Cells[0].Runs, b.Cells[0].Runs = a.Cells[0].Runs[:runs], b.Cells[0].Runs[:runs]
		html := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b)).HTML()
		assert.Regexp(t, `<td>too few runs</td><td>&#43;0\.0 %</td><td>not known</td><td>[^<]+</td><td>[^<]+</td><td>`+spread+`</td>`, html)
		assert.Contains(t, html, "a side has fewer than 3 runs")
	}
}

// TestADiffSaysHowBothSidesWereMeasured: and why either cannot be trusted.
func TestADiffSaysHowBothSidesWereMeasured(t *testing.T) {
	a, b := testResult(), testResult()
	a.Command, b.Command = []string{"kvbench", "old"}, []string{"kvbench", "new"}
	a.Cells[0].Runs[0].Unverified = true
	html := Diff(a, b, [2]string{"a", "b"}, mustCompare(t, a, b)).HTML()
	for _, says := range []string{
		"Before: The answers of 1 run were not checked.", "After: Every answer was checked",
		"<dt>command, before</dt><dd>kvbench old</dd>", "<dt>command, after</dt><dd>kvbench new</dd>",
	} {
		assert.Contains(t, html, says)
	}
	assert.Equal(t, 1, strings.Count(html, "<dt>compiler"), "what is the same stands once")
	assert.Equal(t, 1, strings.Count(html, "At least 3 runs"))
}

// TestALongTableIsFolded: and says what it holds. The caption of another one has the width of the
// page.
func TestALongTableIsFolded(t *testing.T) {
	table := &Table{Head: []string{"n"}, Caption: "What it says."}
	for len(table.Rows) <= mostRows {
		table.Rows = append(table.Rows, []Entry{Words("1")})
	}
	p := &Page{Result: testResult(), Sections: []Section{{Title: "s", Tables: []*Table{table}}}}
	html := p.HTML()
	assert.Contains(t, html, "<details><summary>All 51 rows. What it says.</summary>\n<div")
	assert.Contains(t, html, "</table></div>\n</details>")
	table.Rows = table.Rows[1:]
	assert.NotContains(t, p.HTML(), "<details>")
	assert.Contains(t, p.HTML(), "</table></div>\n<p class=\"caption\">What it says.</p>")
}

// TestADiffNamesCellsByWhatTellsThemApart: the tables would not fit the page otherwise.
func TestADiffNamesCellsByWhatTellsThemApart(t *testing.T) {
	cell := func(batch string) *results.Cell {
		return &results.Cell{Params: []results.Param{{Name: "store", Value: "disk"}, {Name: "batch", Value: batch}}, Runs: testResult().Cells[0].Runs}
	}
	two := &results.Result{Cells: []*results.Cell{cell("none"), cell("16")}}
	assert.Equal(t, map[string]string{"store disk, batch none": "batch none", "store disk, batch 16": "batch 16"}, shortNames(two, two))
	assert.Contains(t, Diff(two, two, [2]string{"a", "b"}, mustCompare(t, two, two)).HTML(), "<td>batch none</td>")

	one := &results.Result{Cells: []*results.Cell{cell("none")}}
	assert.Equal(t, map[string]string{"store disk, batch none": ""}, shortNames(one, one))
	html := Diff(one, one, [2]string{"a", "b"}, mustCompare(t, one, one)).HTML()
	assert.Contains(t, html, "<p>store disk, batch none</p>")
	assert.Contains(t, html, "<tr><td>operations/s</td><td>no difference</td>", "a single cell has no name in tables, and the verdict is not cut off")
	assert.Empty(t, shortNames(&results.Result{}, &results.Result{}))
}

func mustCompare(t *testing.T, a, b *results.Result) *results.Comparison {
	t.Helper()
	d, err := results.Compare(a, b, results.DefaultLeast)
	require.NoError(t, err)
	return d
}
