package results

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/vfs"
)

// Names of the files of a directory.
const (
	ResultFile = "result.json"
	SeriesFile = "series.csv"
	BenchFile  = "bench.txt"
	ReportFile = "report.html"
	TextFile   = "report.md"
)

// Prepare makes the directory if need be, and finds out whether files can be written there:
// before a measurement of hours, rather than after it. It locks the directory until the
// returned Closer is closed or the process ends, so that no two measurements write there.
func Prepare(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("results: the report cannot be written: %w", err)
	}
	held, err := vfs.OS.LockExisting(dir, false)
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return nil, fmt.Errorf("results: another measurement writes its report to %s: wait for it, or name another directory: %w", dir, err)
	case errors.Is(err, errors.ErrUnsupported):
		held = io.NopCloser(nil)
	case err != nil:
		return nil, fmt.Errorf("results: the report cannot be written: %w", err)
	}
	if err := probe(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("results: the report cannot be written: %w", err), held.Close())
	}
	return held, nil
}

// probe writes a file and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, "kvbench-probe-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096)) // of a full disk, a file can be made
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// Write writes the directory of a result that was just measured, which is made if need be.
// page has the files of its page by their names, ReportFile among them. Write replaces files
// of the same names, removes those that an earlier result left, which it knows by their
// names, and leaves others alone. If a file cannot be written, for example as the disk is
// full, all files of an earlier result are still there and unchanged.
func Write(dir string, r *Result, page map[string][]byte) error {
	result, err := r.marshal()
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	files := map[string][]byte{ResultFile: result, SeriesFile: r.series(), BenchFile: r.benchmarks()}
	for n, c := range r.Cells {
		run := c.MedianRun()
		if run == nil {
			continue
		}
		for i := range run.Latencies {
			l := &run.Latencies[i]
			files[fmt.Sprintf("%03d-%s.hgrm", n+1, FileName(l.Operation))] = l.percentiles()
		}
		files[fmt.Sprintf("%03d-memtier.json", n+1)] = memtier(r, run)
		if len(run.log) > 0 {
			files[logName(n)] = hdrLog(r, c, run)
		}
	}
	maps.Copy(files, page)
	return replace(dir, files, ofCells, ofFigures)
}

// Redraw replaces the page of a directory, and leaves what was measured alone.
func Redraw(dir string, page map[string][]byte) error { return replace(dir, page, ofFigures) }

// Files of which a directory has as many as its result has cells, operations or figures.
var (
	ofCells   = regexp.MustCompile(`^[0-9]{3,}(-[a-z0-9-]+\.hgrm|-memtier\.json|\.hlog)$`)
	ofFigures = regexp.MustCompile(`^figure-[0-9]{2,}-[a-z0-9-]+\.svg$`)
)

// unfinished ends the names of files that are not written to their end. A process that was
// killed may leave some.
const unfinished = ".kvbench-unfinished"

var ofUnfinished = regexp.MustCompile(regexp.QuoteMeta(unfinished) + "$")

// replace writes files, and removes others whose names match. No file is replaced before all
// are written, and result.json is replaced last.
func replace(dir string, files map[string][]byte, stale ...*regexp.Regexp) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	names := slices.Sorted(maps.Keys(files))
	if i := slices.Index(names, ResultFile); i >= 0 {
		names = append(slices.Delete(names, i, i+1), ResultFile)
	}
	for i, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name+unfinished), files[name], 0o644); err != nil {
			for _, name := range names[:i+1] {
				_ = os.Remove(filepath.Join(dir, name+unfinished)) // the next result replaces it
			}
			return fmt.Errorf("results: the report cannot be written, and what was in %s is unchanged: %w", dir, err)
		}
	}
	for _, name := range names {
		if err := os.Rename(filepath.Join(dir, name+unfinished), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("results: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	for _, e := range entries {
		_, again := files[e.Name()]
		if again || !slices.ContainsFunc(append(stale, ofUnfinished), func(x *regexp.Regexp) bool { return x.MatchString(e.Name()) }) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("results: remove what an earlier result left: %w", err)
		}
	}
	return nil
}

// Read reads result.json of a directory.
func Read(dir string) (*Result, error) {
	name := filepath.Join(dir, ResultFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	r := new(Result)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("results: %s is not a result of kvbench: %w", name, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("results: %s has format version %d, this kvbench reads version %d", name, r.Version, Version)
	}
	for i, c := range r.Cells {
		if c == nil || slices.Contains(c.Runs, nil) || slices.ContainsFunc(c.Runs, func(r *Run) bool { return r.Trial == nil }) {
			return nil, fmt.Errorf("results: %s: cell %d is incomplete", name, i)
		}
	}
	return r, nil
}

// FileName makes a part of a file's name, of letters, digits and dashes; "-" for nothing.
func FileName(s string) string {
	return cmp.Or(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s)), "-")
}

// series returns series.csv: the parameters of the cell, the run, and what happened in a
// second, a row for each operation of the run. An operation of which none ended in that second has
// a rate of 0 and no latencies.
func (r *Result) series() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	write := func(row []string) { _ = w.Write(row) } // into memory
	var names []string
	for _, c := range r.Cells {
		for _, p := range c.Params {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	write(append(slices.Clone(names), "run", "second", "ops_per_second", "disk_bytes", "operation", "operation_ops_per_second", "p50_ns", "p99_ns", "p999_ns", "max_ns"))
	for _, c := range r.Cells {
		var params []string
		for _, name := range names {
			params = append(params, c.Param(name))
		}
		for n, run := range c.Runs {
			for i := range run.Series {
				s := &run.Series[i]
				disk := ""
				if s.Bytes != nil {
					disk = strconv.FormatInt(*s.Bytes, 10)
				}
				for _, name := range operationNames(&Cell{Runs: []*Run{run}}) {
					o := s.operation(name)
					row := append(slices.Clone(params), strconv.Itoa(n+1), decimal(s.At), decimal(s.OpsPerSecond), disk, name, decimal(o.OpsPerSecond))
					for _, nanos := range []int64{o.Nanos.P50, o.Nanos.P99, o.Nanos.P999, o.Nanos.Max} {
						if o.Count == 0 {
							row = append(row, "") // there is none
						} else {
							row = append(row, strconv.FormatInt(nanos, 10))
						}
					}
					write(row)
				}
			}
		}
	}
	w.Flush()
	return b.Bytes()
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// benchmarks returns bench.txt: one line for each run and operation, in the format of Go
// benchmarks. Runs of a cell have the same name, so that benchstat sees their spread.
func (r *Result) benchmarks() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "goos: linux\ncpu: %s\ncommit: %s\n", r.Environment.CPU, r.Environment.Commit)
	for _, c := range r.Cells {
		name := "Benchmark" + camel(r.Experiment)
		for _, p := range c.Params {
			name += "/" + strings.ReplaceAll(p.Name, " ", "_") + "=" + strings.ReplaceAll(p.Value, " ", "_")
		}
		for _, run := range c.Runs {
			for _, o := range run.Trial.Operations {
				fmt.Fprintf(&b, "%s/op=%s %d %d ns/op %.1f ops/s %d p50-ns %d p99-ns %d p99.9-ns %d max-ns\n", name, strings.ReplaceAll(o.Name, " ", "_"),
					o.Count, o.MeanNanos, o.OpsPerSecond, o.Nanos.P50, o.Nanos.P99, o.Nanos.P999, o.Nanos.Max)
			}
		}
	}
	return b.Bytes()
}

func camel(s string) string {
	if s == "" {
		return "Run"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
