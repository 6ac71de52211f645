package report

import (
	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// ProcessorsOverTime shows which share of the machine's processor time the process that measured
// had in each second, and which all others had; nil if that is known of fewer than two seconds.
func ProcessorsOverTime(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	own, others, note := "this process, with the store", "all others", ""
	if OfServer(c) {
		own, others = "this process: load and client", "all others, with the server"
		note = "All others contain the server if it runs on this machine."
	}
	server := &chart.Area{Layers: []chart.Layer{{Name: "the server", Series: 2}}}
	area := &chart.Area{Layers: []chart.Layer{{Name: own, Series: 0}, {Name: others, Series: 7}}}
	for i := range run.Series {
		s := &run.Series[i]
		if s.ServerCPU != nil {
			server.X, server.Layers[0].Y = append(server.X, s.At), append(server.Layers[0].Y, *s.ServerCPU)
		}
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
		Title: "Processors over time", X: TimeAxis(), Note: Note(r, c),
		Panels: []chart.Panel{{Y: chart.Axis{Label: "of all processors", Format: chart.Percent, Max: &all}, Height: 110, Marks: []chart.Mark{area}}},
	}
	if len(server.X) > 1 {
		f.Panels = append(f.Panels, chart.Panel{Y: chart.Axis{Label: "of its own", Format: chart.Percent, Max: &all}, Height: 90, Marks: []chart.Mark{server}})
		note += " Below: the share that the server had of the processors that it may use."
	}
	if note != "" {
		f.Note = append(f.Note, note)
	}
	return f
}

// serverUse returns what a run took of the processors of a server; nil if it is not known, and
// then why.
func serverUse(run *results.Run) (use *loadgen.ServerUse, why string) {
	switch use = run.Server; {
	case use == nil:
		return nil, "pass --admin"
	case use.Unknown != "":
		return nil, use.Unknown
	}
	return use, ""
}

// ServerCPU is the share that a server had of the processors that it may use.
func ServerCPU(run *results.Run) Entry {
	use, _ := serverUse(run)
	if use == nil {
		return Words("not known")
	}
	return Words(chart.Percent(rounded(use.Share)))
}
