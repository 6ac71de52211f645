package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// restarts gives access to the cells by their parameters.
type restarts struct {
	result *results.Result
	keys   []int
	logs   []string // in the order of the cells
}

func newRestarts(r *results.Result) *restarts {
	return &restarts{result: r, keys: numbersOf(r, paramKeys), logs: valuesOf(r, paramLog)}
}

func (s *restarts) cell(keys int, log, stop string) *results.Cell {
	return cellWith(s.result, paramKeys, strconv.Itoa(keys), paramLog, log, paramStop, stop)
}

// measure returns the median of a measure; 0 if it is not known.
func measure(c *results.Cell, name string) float64 {
	if c == nil {
		return 0
	}
	v, _ := c.Measure(name)
	return v
}

func restartLead(r *results.Result) string {
	s := newRestarts(r)
	if len(s.keys) == 0 {
		return "Time from the start to the first answer."
	}
	most, log := s.keys[len(s.keys)-1], s.logs[len(s.logs)-1]
	kill, clean := s.cell(most, log, stopKill), s.cell(most, s.logs[0], stopClean)
	if kill == nil || clean == nil {
		return "Time from the start to the first answer."
	}
	lead := fmt.Sprintf("%s keys (%s) are ready %s after a clean stop, and %s after a kill with %s unflushed",
		chart.Number(float64(most)), chart.Bytes(measure(clean, measureDataBytes)), startTime(clean), startTime(kill), log)
	if perKey, ok := s.furtherKey(measureHeapRead); ok {
		lead += fmt.Sprintf("; a further key costs %s of memory", chart.Bytes(perKey))
	}
	return lead + "."
}

// startTime writes the median time of a start.
func startTime(c *results.Cell) string {
	return chart.Nanos(measure(c, measureOpen) + measure(c, measureFirstRead))
}

// furtherKey returns how much a measure grows with a key, between the fewest and the most
// keys, with the fewest unflushed entries.
func (s *restarts) furtherKey(name string) (float64, bool) {
	if len(s.keys) < 2 {
		return 0, false
	}
	few, many := s.keys[0], s.keys[len(s.keys)-1]
	a, b := s.cell(few, s.logs[0], stopClean), s.cell(many, s.logs[0], stopClean)
	if a == nil || b == nil {
		return 0, false
	}
	return max(measure(b, name)-measure(a, name), 0) / float64(many-few), true
}

func restartSections(r *results.Result) []report.Section {
	s := newRestarts(r)
	if len(s.keys) == 0 {
		return nil
	}
	return []report.Section{
		{Title: "Time to the first answer", Text: []string{s.conditions()}, Tables: []*report.Table{s.times()}, Figures: []*chart.Figure{s.byData(), s.byLog()}},
		{Title: "Memory", Tables: []*report.Table{s.memory()}},
		s.startsElsewhere(),
	}
}

// conditions says how the stores were stopped and started.
func (s *restarts) conditions() string {
	text := "Each store is filled by a process of its own, which flushes and merges all keys, puts some of them again, and is killed (SIGKILL): these entries are unflushed, in the log only. " +
		"It is started, read from, stopped cleanly, and started again; a clean stop leaves the log as it is. The log also holds flushed entries: a few segments, which repeated requests are recognised by. " +
		"What the store did is told of the start, and where the time of a get goes of the reads that follow. "
	for _, c := range s.result.Cells {
		if measure(c, results.Evicted) > 0 {
			return text + "All files were synced and dropped from the page cache before each start."
		}
	}
	return text + "The files were left in the page cache."
}

// times has a row for each combination.
func (s *restarts) times() *report.Table {
	t := &report.Table{
		Head:    []string{"keys", "data", "unflushed", "log", "stop", "ready", "runs", "first read", "replayed", "read", "written"},
		Caption: "Medians of the runs. Ready: from the start to the first answer; runs: the shortest and the longest. Replayed: records of the log, each of which has several entries. Read and written: bytes that the start moved from and to the disk, with read-ahead.",
	}
	for _, keys := range s.keys {
		for _, log := range s.logs {
			for _, stop := range stops {
				c := s.cell(keys, log, stop)
				if c == nil {
					continue
				}
				between := "-"
				if least, longest := startRange(c); len(c.Runs) > 1 {
					between = nanosRange(least, longest)
				}
				t.Rows = append(t.Rows, []report.Entry{
					report.Words(chart.Number(float64(keys))), report.Words(chart.Bytes(measure(c, measureDataBytes))), report.Words(log),
					report.Words(chart.Bytes(measure(c, measureLogBytes))), report.Words(stop),
					report.Cost(startTime(c), measure(c, measureOpen)+measure(c, measureFirstRead)), report.Words(between),
					report.Words(chart.Nanos(measure(c, measureFirstRead))), report.Words(chart.Number(measure(c, measureRecords))),
					moved(c, func(a *results.Activity) uint64 { return a.DiskReadBytes }), moved(c, func(a *results.Activity) uint64 { return a.DiskWrittenBytes }),
				})
			}
		}
	}
	return t
}

// nanosRange returns a range of times, with the unit once if both have the same: the table is
// as wide as the page.
func nanosRange(least, longest float64) string {
	from, to := chart.Nanos(least), chart.Nanos(longest)
	if number, unit, _ := strings.Cut(from, " "); strings.HasSuffix(to, " "+unit) {
		from = number
	}
	return from + "–" + to
}

// moved returns the median of the bytes that the starts of a cell moved; "-" if that is not
// known.
func moved(c *results.Cell, of func(*results.Activity) uint64) report.Entry {
	var bytes []float64
	for _, run := range c.Runs {
		if a := run.Counters(); a != nil {
			bytes = append(bytes, float64(of(a)))
		}
	}
	if len(bytes) == 0 {
		return report.Words("-")
	}
	return report.Words(chart.Bytes(loadgen.Median(bytes)))
}

// startRange returns the shortest and the longest start of the runs.
func startRange(c *results.Cell) (least, longest float64) {
	for i, r := range c.Runs {
		ready := r.Measures[measureOpen] + r.Measures[measureFirstRead]
		if i == 0 || ready < least {
			least = ready
		}
		longest = max(longest, ready)
	}
	return least, longest
}

// addStart adds a start to a line.
func addStart(line *chart.Line, x float64, c *results.Cell) {
	least, longest := startRange(c)
	line.X, line.Y = append(line.X, x), append(line.Y, measure(c, measureOpen)+measure(c, measureFirstRead))
	line.Low, line.High = append(line.Low, least), append(line.High, longest)
}

// byData shows the time by the size of the files, for the fewest and the most unflushed entries:
// a panel for each, of the same scale.
func (s *restarts) byData() *chart.Figure {
	f := &chart.Figure{
		Title: "Start by size of the data", X: chart.Axis{Label: "bytes of tables and value files", Format: chart.Bytes, Binary: true},
		Note: append(s.note(), "Each panel: time to the first answer with so many bytes unflushed, in the log only."),
	}
	logs := []string{s.logs[0]}
	if last := s.logs[len(s.logs)-1]; last != s.logs[0] {
		logs = append(logs, last)
	}
	top := 1.0
	for _, log := range logs {
		panel := chart.Panel{Y: chart.Axis{Label: log + " unflushed", Format: chart.Nanos, Max: &top}, Height: 150}
		for i, stop := range stops {
			line := &chart.Line{Series: i}
			if log == s.logs[0] {
				line.Name = stop // the keys of the other panel are the same
			}
			for _, keys := range s.keys {
				if c := s.cell(keys, log, stop); c != nil {
					addStart(line, measure(c, measureDataBytes), c)
					_, longest := startRange(c)
					top = max(top, longest)
				}
			}
			panel.Marks = append(panel.Marks, line)
		}
		f.Panels = append(f.Panels, panel)
	}
	top *= 1.05 // so that the longest start is within the panel
	return f
}

// byLog shows the time by the size of the log, for the most keys.
func (s *restarts) byLog() *chart.Figure {
	most := s.keys[len(s.keys)-1]
	f := &chart.Figure{
		Title: "Start by size of the log, " + chart.Number(float64(most)) + " keys", Note: s.note(),
		X: chart.Axis{Label: "bytes of the log", Format: chart.Bytes, Binary: true},
	}
	panel := chart.Panel{Y: chart.Axis{Label: "time to the first answer", Format: chart.Nanos}}
	for i, stop := range stops {
		line := &chart.Line{Name: stop, Series: i}
		var cells []*results.Cell
		for _, log := range s.logs {
			if c := s.cell(most, log, stop); c != nil {
				cells = append(cells, c)
			}
		}
		// A log with fewer unflushed entries may be larger, as it also holds flushed ones.
		slices.SortStableFunc(cells, func(a, b *results.Cell) int {
			return cmp.Compare(measure(a, measureLogBytes), measure(b, measureLogBytes))
		})
		for _, c := range cells {
			addStart(line, measure(c, measureLogBytes), c)
		}
		panel.Marks = append(panel.Marks, line)
	}
	f.Panels = []chart.Panel{panel}
	return f
}

func (s *restarts) note() []string {
	return append(report.Note(s.result, nil), "Bands: the shortest and the longest of the runs.")
}

// memory has what the stores took of the heap, with the fewest unflushed entries.
func (s *restarts) memory() *report.Table {
	t := &report.Table{
		Head:    []string{"keys", "data", "heap after start", "a key", "heap after reads", "a key"},
		Caption: "Heap of the process in use after a garbage collection, without what was there before the start; with the fewest unflushed entries, after a clean stop. The block cache is part of it, and filled by the reads.",
	}
	for _, keys := range s.keys {
		c := s.cell(keys, s.logs[0], stopClean)
		if c == nil {
			continue
		}
		row := []report.Entry{report.Words(chart.Number(float64(keys))), report.Words(chart.Bytes(measure(c, measureDataBytes)))}
		for _, name := range []string{measureHeap, measureHeapRead} {
			bytes := measure(c, name)
			row = append(row, report.Words(chart.Bytes(bytes)), report.Words(chart.Bytes(bytes/float64(keys))))
		}
		t.Rows = append(t.Rows, row)
	}
	if _, ok := s.furtherKey(measureHeap); ok {
		row := []report.Entry{report.Words("each further key"), report.Words("")}
		for _, name := range []string{measureHeap, measureHeapRead} {
			perKey, _ := s.furtherKey(name)
			row = append(row, report.Words(""), report.Words(chart.Bytes(perKey)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// startsElsewhere has the figures of the articles, and ours.
func (s *restarts) startsElsewhere() report.Section {
	t := &report.Table{
		Head: []string{"figure", "as published", "kvd"}, Prose: true,
		Caption: "JitCask: keys of 64 bytes, values of 2 KiB stored as 1.5 KiB, on a SATA SSD. Keys in 8 GB were counted with empty values.",
	}
	start, key := "-", "-"
	if c := s.cell(s.keys[len(s.keys)-1], s.logs[0], stopKill); c != nil {
		start = startTime(c)
		t.Caption += fmt.Sprintf(" kvd: start after a kill, with files of %s; memory after reads.", chart.Bytes(measure(c, measureDataBytes)))
	}
	if perKey, ok := s.furtherKey(measureHeapRead); ok {
		key = chart.Bytes(perKey) + " a further key"
	}
	for _, row := range [][3]string{
		{"JitCask, start with 30 GB", "121 s at best", start},
		{"JitCask, memory of a key, expected", "114 to 128 bytes", key},
		{"JitCask, keys in a heap of 8 GB", "45 to 50 million: 160 to 178 bytes each", key},
		{"Bitcask, start", "reads the hint files, or all data files without them", "replays the log"},
		{"Bitcask, memory of a key", "the key, with the file, place, size and time of its value", key},
	} {
		t.Rows = append(t.Rows, []report.Entry{report.Words(row[0]), report.Words(row[1]), report.Words(row[2])})
	}
	return report.Section{Title: "The articles' figures", Tables: []*report.Table{t}}
}
