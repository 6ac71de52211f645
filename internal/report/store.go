package report

import (
	"math"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// storeFiles are the kinds of files of a store, from the bottom of a stack to its top.
var storeFiles = []struct {
	name    string
	meaning string
	series  int
	of      func(*results.StoreState) uint64
}{
	{"base", "the oldest tables, merged", 0, func(s *results.StoreState) uint64 { return s.Base }},
	{"deltas", "newer tables, yet to be merged", 5, func(s *results.StoreState) uint64 { return s.Deltas }},
	{"values", "large values, apart from their keys", 2, func(s *results.StoreState) uint64 { return s.Values - min(s.Garbage, s.Values) }},
	{"garbage", "of these, overwritten or deleted", 1, func(s *results.StoreState) uint64 { return min(s.Garbage, s.Values) }},
	{"log", "to recover writes that are not in tables", 4, func(s *results.StoreState) uint64 { return s.Log }},
}

// filesOverTime is the bytes on disk in each second, by the kind of the file if the store told
// it. Kinds of which there was nothing are left out.
func filesOverTime(run *results.Run) *chart.Area {
	area := new(chart.Area)
	kinds := make([]chart.Layer, len(storeFiles))
	total := chart.Layer{Name: "on disk"}
	known := len(run.Series) > 0 && !slices.ContainsFunc(run.Series, func(s results.Second) bool { return s.Store == nil })
	for i := range run.Series {
		s := &run.Series[i]
		if !known && s.Bytes == nil {
			continue
		}
		area.X = append(area.X, s.At)
		if !known {
			total.Y = append(total.Y, float64(*s.Bytes))
			continue
		}
		for n, kind := range storeFiles {
			kinds[n].Name, kinds[n].Series = kind.name, kind.series
			kinds[n].Y = append(kinds[n].Y, float64(kind.of(s.Store)))
		}
	}
	if !known {
		area.Layers = []chart.Layer{total}
		return area
	}
	area.Layers = slices.DeleteFunc(kinds, func(l chart.Layer) bool { return len(l.Y) == 0 || slices.Max(l.Y) == 0 })
	return area
}

// fileMeanings explains the kinds of files of an area; "" if they are not known.
func fileMeanings(area *chart.Area) string {
	var meanings []string
	for _, kind := range storeFiles {
		if slices.ContainsFunc(area.Layers, func(l chart.Layer) bool { return l.Name == kind.name }) {
			meanings = append(meanings, kind.name+": "+kind.meaning)
		}
	}
	if meanings == nil {
		return ""
	}
	return strings.Join(meanings, "; ") + "."
}

// TreeOverTime shows whether the tree of a store reached a steady state: the bytes that
// compactions still have to read, the bytes written for each byte put, and when writers were
// slowed. It is nil if the store told nothing, or nothing was put.
func TreeOverTime(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	debt := &chart.Area{Layers: []chart.Layer{{Name: "to be compacted", Series: 3}}}
	written := &chart.Line{Name: "bytes written for each byte put, since the beginning", Series: 0, Plain: true}
	run, seconds := condensed(run, mostPoints)
	var slowed []chart.Mark
	before := 0.0
	for i := range run.Series {
		s := &run.Series[i]
		if s.Store == nil {
			return nil
		}
		debt.X, debt.Layers[0].Y = append(debt.X, s.At), append(debt.Layers[0].Y, float64(s.Store.Debt))
		amplification := math.NaN()
		if s.Store.Put > 0 {
			amplification = float64(s.Store.Written) / float64(s.Store.Put)
		}
		written.X, written.Y = append(written.X, s.At), append(written.Y, amplification)
		if s.Store.Pressure > 0 {
			slowed = append(slowed, &chart.Shade{From: before, To: s.At, Name: "writers were slowed"})
		}
		before = s.At
	}
	if n := len(written.Y); n < 2 || math.IsNaN(written.Y[n-1]) {
		return nil
	}
	note := append(Note(r, c), condensedNote(seconds, "point")...)
	if len(slowed) > 0 {
		note = append(note, "Shaded: at the end of a second writers were slowed, as flushes or compactions lagged.")
	}
	panels := []chart.Panel{{Y: chart.Axis{Label: "ratio"}, Height: 110, Marks: append(slices.Clone(slowed), written)}}
	if slices.Max(debt.Layers[0].Y) > 0 {
		panels = append(panels, chart.Panel{Y: chart.Axis{Label: "bytes", Format: chart.Bytes, Binary: true}, Height: 90, Marks: append(slices.Clone(slowed), debt)})
	} else {
		note = append(note, "At the end of no second did anything wait to be compacted.")
	}
	return &chart.Figure{Title: "The LSM tree over time", X: TimeAxis(), Panels: panels, Note: note}
}
