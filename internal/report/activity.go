package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// Store is the table of what the store and the processors did in a run of a cell; nil if
// nothing is known.
func Store(c *results.Cell, run *results.Run) *Table {
	t := &Table{Head: []string{"of the store and the machine", "during the measurement"}}
	add := func(name, format string, args ...any) {
		t.Rows = append(t.Rows, []Entry{Words(name), Words(fmt.Sprintf(format, args...))})
	}
	if a := run.Counters(); a != nil {
		add("writes a micro-batch", "%s", chart.Number(a.OpsPerWriteBatch))
		add("reads a micro-batch", "%s", chart.Number(a.OpsPerReadBatch))
		add("records a log write", "%s", chart.Number(a.RecordsPerLogWrite))
		add("syncs of the log", "%s", chart.Number(float64(a.LogSyncs)))
		add("log, flushes, compactions", "%s, %s, %s", chart.Bytes(float64(a.LogBytes)), chart.Bytes(float64(a.FlushedBytes)), chart.Bytes(float64(a.CompactedBytes)))
		add("bytes written for each byte put", "%s", chart.Number(a.WrittenPerUserBytes))
		if !a.DiskUnknown {
			add("read from the disk, written to it", "%s, %s", chart.Bytes(float64(a.DiskReadBytes)), chart.Bytes(float64(a.DiskWrittenBytes)))
		}
	}
	if run.OwnCPU != nil && run.OtherCPU != nil {
		add("processors: this process, all others", "%s, %s", chart.Percent(rounded(*run.OwnCPU)), chart.Percent(rounded(*run.OtherCPU)))
	}
	if OfServer(c) {
		add("CPU time of an operation, in this process", "%s", chart.Nanos(1000*run.CPUMicrosPerOp))
		if use, why := serverUse(run); use == nil {
			add("CPU time of an operation, in the server", "not known: %s", why)
		} else {
			add("CPU time of an operation, in the server", "%s", chart.Nanos(1000*use.CPUMicrosPerOp))
			add(fmt.Sprintf("the server, of its %s", Plural(int(use.Processors), "processor")), "%s", chart.Percent(rounded(use.Share)))
		}
	}
	if n := run.Generator.VerificationNanosPerOp; n > 0 {
		add("verification, of the CPU time of this process", "%s", chart.Percent(math.Round(1000*run.Generator.VerificationShare)/1000))
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// stageMeanings say what happens in each of results.StageNames.
var stageMeanings = [results.StageCount]string{
	"until the call leaves the client, and from the answer's arrival until the caller runs",
	"on the way, there and back",
	"decoding, waiting to be admitted, and building the answer",
	"until the partition takes the call",
	"until its record is in the buffer of the log",
	"reading, or writing to memory and waking the caller",
	"until the operating system has the record",
	"until the disk has it",
}

// WhereTimeGoes shows, for the calls of one operation, which stages their time went to: one
// bar for each range of percentiles.
func WhereTimeGoes(r *results.Result, c *results.Cell, s *results.Stages) *chart.Figure {
	f := &chart.Figure{
		Title: "Where the time of a " + s.Operation + " goes", X: chart.Axis{Label: "calls by their time, and its mean", Kind: chart.Categories},
		Note: append(Note(r, c), "Of one call in 16, without the wait for a free thread in an open loop."),
	}
	top := 1.0
	bars := &chart.Bars{Stacked: true}
	var meanings []string
	for stage, name := range results.StageNames {
		layer := chart.Layer{Name: name, Series: stage}
		used := false
		for _, band := range s.Bands {
			share := float64(band.Nanos[stage]) / float64(max(band.Nanos.Total(), 1))
			layer.Y = append(layer.Y, share)
			used = used || share >= 0.001
		}
		if used {
			bars.Layers = append(bars.Layers, layer)
			meanings = append(meanings, name+": "+stageMeanings[stage])
		}
	}
	if len(meanings) > 0 {
		f.Note = append(f.Note, strings.Join(meanings, "; ")+".")
	}
	for i, band := range s.Bands {
		bars.X = append(bars.X, float64(i))
		f.X.Names = append(f.X.Names, bandName(&band)+": "+chart.Nanos(float64(band.Nanos.Total())))
	}
	f.Panels = []chart.Panel{{Y: chart.Axis{Label: "share of the time", Format: chart.Percent, Max: &top}, Marks: []chart.Mark{bars}}}
	return f
}

func bandName(b *results.StageBand) string {
	percent := func(q float64) string { return "p" + chart.Number(100*q) }
	if b.To == 1 {
		return "over " + percent(b.From)
	}
	return percent(b.From) + " to " + percent(b.To)
}

// costs returns a section with what stores and processors did in each cell, and where the
// time of the fastest cell's calls went; nil if nothing is known. A page of a single cell
// has this in the section of the cell.
func costs(r *results.Result) *Section {
	if len(r.Cells) < 2 {
		return nil
	}
	s := &Section{Title: "What it took"}
	names := varying(r)
	for _, t := range []*Table{storeWork(r, names), machineWork(r, names)} {
		if t != nil {
			s.Tables = append(s.Tables, t)
		}
	}
	if fastest := fastestStaged(r); fastest != nil {
		s.Text = []string{"The figures show the fastest cell: " + fastest.Name() + "."}
		run := fastest.MedianRun()
		for i := range run.Stages {
			s.Figures = append(s.Figures, WhereTimeGoes(r, fastest, &run.Stages[i]))
		}
		if f := ProcessorsOverTime(r, fastest, run); f != nil {
			s.Figures = append(s.Figures, f)
		}
	}
	if s.Tables == nil && s.Figures == nil {
		return nil
	}
	return s
}

// fastestStaged returns the cell with the highest rate of those that know where the time of
// calls went; nil without any.
func fastestStaged(r *results.Result) *results.Cell {
	var fastest *results.Cell
	for _, c := range r.Cells {
		run := c.MedianRun()
		if run != nil && len(run.Stages) > 0 && (fastest == nil || run.OpsPerSecond > fastest.MedianRun().OpsPerSecond) {
			fastest = c
		}
	}
	return fastest
}

// workColumns are what a store did, as columns of a table.
var workColumns = []struct {
	head, meaning string
	of            func(*results.Activity) float64
}{
	{"writes", "writes a micro-batch", func(a *results.Activity) float64 { return a.OpsPerWriteBatch }},
	{"reads", "reads a micro-batch", func(a *results.Activity) float64 { return a.OpsPerReadBatch }},
	{"log records", "records a write of the log", func(a *results.Activity) float64 { return a.RecordsPerLogWrite }},
	{"syncs", "syncs of the log", func(a *results.Activity) float64 { return float64(a.LogSyncs) }},
	{"written/put", "bytes written for each byte put", func(a *results.Activity) float64 { return a.WrittenPerUserBytes }},
}

// storeWork is the table of what the store of each cell did in its median run, without columns
// in which all is zero; nil if no store told, or none did anything.
func storeWork(r *results.Result, names []string) *Table {
	var cells []*results.Cell
	for _, c := range r.Cells {
		if run := c.MedianRun(); run != nil && run.Counters() != nil {
			cells = append(cells, c)
		}
	}
	t := &Table{Head: slices.Clone(names)}
	for _, c := range cells {
		t.Rows = append(t.Rows, paramEntries(c, names))
	}
	var meanings []string
	for _, column := range workColumns {
		done := func(c *results.Cell) float64 { return column.of(c.MedianRun().Counters()) }
		if !slices.ContainsFunc(cells, func(c *results.Cell) bool { return done(c) != 0 }) {
			continue
		}
		t.Head, meanings = append(t.Head, column.head), append(meanings, column.meaning)
		for i, c := range cells {
			t.Rows[i] = append(t.Rows[i], Words(chart.Number(done(c))))
		}
	}
	if len(meanings) == 0 {
		return nil
	}
	t.Caption = "The median run of each cell: " + strings.Join(meanings, ", ") + "."
	if len(meanings) < len(workColumns) {
		t.Caption += " What was 0 in all of them is left out."
	}
	return t
}

// machineWork is the table of what the disk and the processors did for each cell; nil if
// nothing is known.
func machineWork(r *results.Result, names []string) *Table {
	t := &Table{
		Head:    append(slices.Clone(names), "disk read", "disk written", "CPU", "other CPU"),
		Caption: "Bytes that this process moved from and to the disk, and shares of all processors that it and all others had.",
	}
	servers := slices.ContainsFunc(r.Cells, OfServer)
	if servers {
		t.Head = append(t.Head, "server CPU")
		t.Caption += " This process generates the load; server CPU: of the processors that the server may use."
	}
	for _, c := range r.Cells {
		run := c.MedianRun()
		if run == nil {
			continue
		}
		if row := machineRow(run); row != nil {
			if servers {
				row = append(row, ServerCPU(run))
			}
			t.Rows = append(t.Rows, append(paramEntries(c, names), row...))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// varying returns the names of the parameters that have several values, in the order of the
// first cell.
func varying(r *results.Result) []string {
	var names []string
	for _, p := range r.Cells[0].Params {
		if slices.ContainsFunc(r.Cells, func(c *results.Cell) bool { return c.Param(p.Name) != p.Value }) {
			names = append(names, p.Name)
		}
	}
	return names
}

// paramEntries returns the values of some parameters.
func paramEntries(c *results.Cell, names []string) []Entry {
	var entries []Entry
	for _, name := range names {
		entries = append(entries, Words(c.Param(name)))
	}
	return entries
}

// machineRow returns nil if nothing is known of the run.
func machineRow(run *results.Run) []Entry {
	a := run.Counters()
	if a == nil && run.OwnCPU == nil {
		return nil
	}
	read, written := "-", "-"
	if a != nil && !a.DiskUnknown {
		read, written = chart.Bytes(float64(a.DiskReadBytes)), chart.Bytes(float64(a.DiskWrittenBytes))
	}
	share := func(v *float64) Entry {
		if v == nil {
			return Words("-")
		}
		return Words(chart.Percent(rounded(*v)))
	}
	return []Entry{Words(read), Words(written), share(run.OwnCPU), share(run.OtherCPU)}
}
