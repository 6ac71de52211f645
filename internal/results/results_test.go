package results

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden directory")

// unit has no multiple that is a whole number of seconds below a minute: no operation ends
// at the very moment at which a second is closed.
const unit = 1003 * time.Microsecond

// measured returns a result of two runs with known latencies: gets take one unit, puts
// two, and one put 500. It runs on a fake clock.
func measured(t *testing.T) *Result {
	cell := &Cell{Params: []Param{{"mix", "half and half"}, {"threads", "1"}}, Target: map[string]any{"kind": "none"}}
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			clock, tally := loadgen.NewClock(), loadgen.NewTally(2, 0)
			n, disk := 0, int64(0)
			c := NewCollector([]string{"get", "put"})
			run := loadgen.Run{
				Clock: clock, Operations: []string{"get", "put"},
				Span:      loadgen.Span{Workers: 1, Duration: 3 * time.Second, Interval: time.Second},
				Observer:  loadgen.Observer{Second: c.Second},
				DiskBytes: func() (int64, error) { disk += 1 << 20; return disk, nil },
				Workers: []loadgen.Worker{{Tally: tally, Step: func(_ context.Context, intended int64) error {
					n++
					began := clock.Now()
					takes := time.Duration(1+n%2) * unit
					if n == 501 {
						takes = 500 * unit
					}
					time.Sleep(takes)
					tally.Record(n%2, began, clock.Now(), intended)
					return nil
				}}},
			}
			trial, err := run.Do(t.Context())
			require.NoError(t, err)
			trial.CPUMicrosPerOp, trial.PeakRSSBytes = 1.5, 1<<20 // of this test's process otherwise
			own, other := 0.5, 0.125
			trial.OwnCPU, trial.OtherCPU = &own, &other
			done := c.Run(trial, map[string]any{"syncs": 3})
			for i := range done.Series {
				done.Series[i].OwnCPU, done.Series[i].OtherCPU = nil, nil // likewise
			}
			cell.Runs = append(cell.Runs, done)
		}
	})
	return &Result{
		Version: Version, Experiment: "run", Command: []string{"kvbench", "run"}, Scale: 1, Began: "2026-01-02T03:04:05Z",
		Environment: loadgen.Environment{Commit: "abc", CPU: "a processor", GOMAXPROCS: 2, MemoryBytes: 1 << 30, FileSystem: "ext4"},
		Cells:       []*Cell{cell},
	}
}

// page stands for that of a result.
var page = map[string][]byte{ReportFile: []byte("<!doctype html>"), "figure-01-rate.svg": []byte("<svg/>")}

func TestGoldenDirectory(t *testing.T) {
	r := measured(t)
	dir := t.TempDir()
	require.NoError(t, Write(dir, r, page))
	directory := filepath.Join("testdata", "v1")
	if *update {
		require.NoError(t, os.RemoveAll(directory))
		require.NoError(t, Write(directory, r, page))
	}
	files, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, files, 9)
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(directory, f.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		if strings.HasSuffix(f.Name(), ".hlog") { // compressors of other versions of Go may write other bytes
			wantCounts, _ := countsOf(t, string(want))
			gotCounts, _ := countsOf(t, string(got))
			assert.Equal(t, wantCounts, gotCounts)
			continue
		}
		assert.Equal(t, string(want), string(got), f.Name())
	}
}

// TestTheSeriesShowsAStall: a second in which nothing ended has rows, too.
func TestTheSeriesShowsAStall(t *testing.T) {
	get := loadgen.Operation{Name: "get", Kind: loadgen.Kind{Count: 7, OpsPerSecond: 7, Nanos: loadgen.Latency{P50: 1, P99: 2, P999: 3, Max: 4}}}
	put := loadgen.Operation{Name: "put", Kind: loadgen.Kind{Refused: 3}}
	r := &Result{Cells: []*Cell{{Params: []Param{{"threads", "4"}}, Runs: []*Run{{
		Trial:  &loadgen.Trial{Operations: []loadgen.Operation{get, put}},
		Series: []Second{{At: 1, OpsPerSecond: 7, Operations: []loadgen.Operation{get}}, {At: 2}},
	}}}}}
	assert.Equal(t, []string{
		"threads,run,second,ops_per_second,disk_bytes,operation,operation_ops_per_second,p50_ns,p99_ns,p999_ns,max_ns",
		"4,1,1.000,7.000,,get,7.000,1,2,3,4",
		"4,1,1.000,7.000,,put,0.000,,,,",
		"4,1,2.000,0.000,,get,0.000,,,,",
		"4,1,2.000,0.000,,put,0.000,,,,",
	}, strings.Split(strings.TrimSpace(string(r.series())), "\n"))
}

func TestADirectoryIsReadBack(t *testing.T) {
	r := measured(t)
	dir := t.TempDir()
	require.NoError(t, Write(dir, r, nil))
	back, err := Read(dir)
	require.NoError(t, err)
	again, err := back.marshal()
	require.NoError(t, err)
	first, err := r.marshal()
	require.NoError(t, err)
	assert.JSONEq(t, string(first), string(again))

	run := back.Cells[0].MedianRun()
	require.Len(t, run.Series, 3)
	assert.EqualValues(t, 2<<20, *run.Series[1].Bytes)
	puts := run.Latencies[1]
	assert.Equal(t, "put", puts.Operation)
	assert.InEpsilon(t, 2e6, puts.Quantile(0.5), 0.01)
	assert.InEpsilon(t, 500e6, puts.Quantile(1), 0.01)
	var counted uint64
	for i := range run.Series {
		for _, row := range run.Series[i].Heat {
			counted += row[1]
			assert.True(t, HeatRow(int(row[0])) <= 510e6 && HeatRow(int(row[0])+1) >= 1e6, "row %d", row[0])
		}
	}
	assert.Equal(t, run.Ops, counted, "the heat map has every operation once")
}

// TestNothingIsLeftOfAnEarlierResult: the directory has the files of the last result, and those
// that are not of kvbench.
func TestNothingIsLeftOfAnEarlierResult(t *testing.T) {
	dir := t.TempDir()
	r := measured(t)
	r.Cells = append(r.Cells, r.Cells[0])
	require.NoError(t, Write(dir, r, page))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644))
	assert.Subset(t, names(t, dir), []string{"002-get.hgrm", "002-memtier.json", "002.hlog", "figure-01-rate.svg"})

	r.Cells = r.Cells[:1]
	r.Cells[0].Runs[0].Latencies = r.Cells[0].Runs[0].Latencies[:1]
	require.NoError(t, Write(dir, r, map[string][]byte{ReportFile: nil}))
	want := []string{"001-get.hgrm", "001-memtier.json", "001.hlog", BenchFile, "notes.txt", ReportFile, ResultFile, SeriesFile}
	assert.Equal(t, want, names(t, dir))

	require.NoError(t, Redraw(dir, page))
	assert.ElementsMatch(t, append(want, "figure-01-rate.svg"), names(t, dir), "a new page leaves what was measured alone")

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "009-get.hgrm", "full"), 0o755))
	assert.ErrorContains(t, Write(dir, r, page), "remove what an earlier result left")
}

// TestAnEarlierResultSurvivesWhatCannotBeWritten: a file that cannot be written stands for a
// full disk.
func TestAnEarlierResultSurvivesWhatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	r := measured(t)
	require.NoError(t, Write(dir, r, page))
	before := names(t, dir)
	blocked := filepath.Join(dir, SeriesFile+unfinished)
	require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o755))

	r.Began = "2027-01-02T03:04:05Z"
	for _, write := range []func() error{
		func() error { return Write(dir, r, page) },
		func() error { return Redraw(dir, map[string][]byte{SeriesFile: nil, ReportFile: nil}) },
	} {
		err := write()
		require.ErrorContains(t, err, "what was in "+dir+" is unchanged")
		assert.Equal(t, append(before, filepath.Base(blocked)), names(t, dir))
		back, err := Read(dir)
		require.NoError(t, err)
		assert.Equal(t, "2026-01-02T03:04:05Z", back.Began)
		html, err := os.ReadFile(filepath.Join(dir, ReportFile))
		require.NoError(t, err)
		assert.Equal(t, page[ReportFile], html)
	}

	require.NoError(t, os.RemoveAll(blocked))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "figure-09-x.svg"+unfinished), nil, 0o644)) // by a process that was killed
	require.NoError(t, Write(dir, r, page))
	assert.Equal(t, before, names(t, dir))
}

func TestOneMeasurementWritesToADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "report")
	held, err := Prepare(dir)
	require.NoError(t, err)
	_, err = Prepare(dir)
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorContains(t, err, "another measurement writes its report to "+dir)
	require.NoError(t, held.Close())
	held, err = Prepare(dir)
	require.NoError(t, err)
	require.NoError(t, held.Close())
	assert.Empty(t, names(t, dir))

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err = Prepare(file)
	require.ErrorContains(t, err, "the report cannot be written")
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestWhatIsNoResultIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ content, says string }{
		"newer":      {`{"version": 2}`, "format version 2, this kvbench reads version 1"},
		"not JSON":   {`BenchmarkRun 1`, "is not a result of kvbench"},
		"no version": {`{}`, "format version 0"},
		"null cell":  {`{"version":1,"cells":[null]}`, "cell 0 is incomplete"},
		"null run":   {`{"version":1,"cells":[{"runs":[null]}]}`, "cell 0 is incomplete"},
		"empty run":  {`{"version":1,"cells":[{"runs":[{}]}]}`, "cell 0 is incomplete"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, ResultFile), []byte(test.content), 0o644))
		_, err := Read(dir)
		assert.ErrorContains(t, err, test.says, name)
	}
	_, err := Read(t.TempDir())
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestOtherFormatsHaveEveryRun(t *testing.T) {
	r := measured(t)
	rows, err := csv.NewReader(bytes.NewReader(r.series())).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 1+2*3*2, "a head, then runs, seconds, operations")
	assert.Equal(t, []string{"half and half", "1", "1", "1.000"}, rows[1][:4])

	lines := strings.Split(strings.TrimSpace(string(r.benchmarks())), "\n")
	require.Len(t, lines, 3+4)
	assert.Regexp(t, `^BenchmarkRun/mix=half_and_half/threads=1/op=get \d+ \d+ ns/op [0-9.]+ ops/s`, lines[3])
	assert.Equal(t, strings.Fields(lines[3])[0], strings.Fields(lines[5])[0], "runs of a cell have one name")

	text := string(r.Cells[0].Runs[0].Latencies[1].percentiles())
	assert.Contains(t, text, "#[Max     =   501500")
	assert.Contains(t, text, "1.000000000000")
}

// TestQuantilesAreThoseOfTheHistogram: a result and the histogram that it was taken from have
// the same percentiles, those of the nearest rank.
func TestQuantilesAreThoseOfTheHistogram(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 99, 100, 101, 1000} {
		h := new(histogram.Histogram)
		l := Latencies{}
		for i := range n {
			h.Record(time.Duration(i + 1))
		}
		s := new(histogram.Snapshot)
		s.Add(h)
		s.Each(func(_, high time.Duration, count uint64) {
			l.Buckets = append(l.Buckets, [2]uint64{uint64(high), count})
		})
		for _, q := range []float64{0, 0.07, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999, 1} {
			assert.EqualValues(t, s.Quantile(q), l.Quantile(q), "%v of %d", q, n)
		}
	}
	three := Latencies{Buckets: [][2]uint64{{1, 1}, {2, 1}, {3, 1}}}
	assert.EqualValues(t, 2, three.Quantile(0.5))
	assert.EqualValues(t, 3, three.Quantile(0.99), "not the second, to which 2.97 rounds down")
	assert.Zero(t, new(Latencies).Quantile(0.5))
}

func TestRowsOfAHeatMapAreInOrder(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 99, 100, 101, time.Microsecond, time.Second, time.Hour} {
		row := int(rowOf(d))
		assert.LessOrEqual(t, HeatRow(row), max(float64(d), 100)*1.0001)
		assert.Greater(t, HeatRow(row+1)*1.0001, float64(d))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"cells":[{"params":[{"name":"a","value":"b"}],"runs":[{"seconds":1,"latencies":[{"operation":"x","buckets":[[1,2]]}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, ResultFile), data, 0o644))
		r, err := Read(dir)
		if err != nil {
			return
		}
		for _, c := range r.Cells {
			c.Name()
			c.Rates()
			c.MedianRun()
		}
		require.True(t, json.Valid(data))
		require.NoError(t, Write(dir, r, nil))
	})
}
