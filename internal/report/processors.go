package report

import (
	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// ProcessorsOverTime shows which share of the machine's processor time the process that measured
// had in each second, and which all others had; nil if that is known of fewer than two seconds.
func ProcessorsOverTime(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	own, others, note := "this process, with the store", "all others", ""
	if ofServer(c) {
		own, others = "this process: load and client", "all others, with the server"
		note = "All others contain the server if it runs on this machine."
	}
	area := &chart.Area{Layers: []chart.Layer{{Name: own, Series: 0}, {Name: others, Series: 7}}}
	for i := range run.Series {
		s := &run.Series[i]
		if s.OwnCPU == nil || s.OtherCPU == nil {
			continue
		}
		area.X = append(area.X, s.At)
		area.Layers[0].Y, area.Layers[1].Y = append(area.Layers[0].Y, *s.OwnCPU), append(area.Layers[1].Y, *s.OtherCPU)
	}
	if len(area.X) < 2 {
		return nil
	}
	all := 1.0
	f := &chart.Figure{
		Title: "Processors over time", X: chart.Axis{Label: "time", Format: chart.Seconds}, Note: Note(r, c),
		Panels: []chart.Panel{{Y: chart.Axis{Label: "of all processors", Format: chart.Percent, Max: &all}, Height: 110, Marks: []chart.Mark{area}}},
	}
	if note != "" {
		f.Note = append(f.Note, note)
	}
	return f
}
