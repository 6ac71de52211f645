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
	run, seconds := condensed(run, mostPoints)
	server := &chart.Area{Layers: []chart.Layer{{Name: "the server", Series: 2}}}
	area := &chart.Area{Layers: []chart.Layer{{Name: own, Series: 0}, {Name: others, Series: 7}}}
	for i := range run.Series {
		s := &run.Series[i]
		if s.ServerCPU != nil {
			addSecond(server, i, s.At, *s.ServerCPU)
		}
		if s.OwnCPU != nil && s.OtherCPU != nil {
			addSecond(area, i, s.At, *s.OwnCPU, *s.OtherCPU)
		}
	}
	if known(area) < 2 {
		return nil
	}
	all := 1.0
	f := &chart.Figure{
		Title: "Processors over time", X: TimeAxis(), Note: append(Note(r, c), condensedNote(seconds, "point")...),
		Panels: []chart.Panel{{Y: chart.Axis{Label: "of all processors", Format: chart.Percent, Max: &all}, Height: 110, Marks: []chart.Mark{area}}},
	}
	if known(server) > 1 {
		f.Panels = append(f.Panels, chart.Panel{Y: chart.Axis{Label: "of its own", Format: chart.Percent, Max: &all}, Height: 90, Marks: []chart.Mark{server}})
		note += " Below: the share that the server had of the processors that it may use."
	}
	if note != "" {
		f.Note = append(f.Note, note)
	}
	return f
}

// addSecond adds the shares of a second to an area, of the first one also at its beginning.
func addSecond(area *chart.Area, second int, at float64, shares ...float64) {
	times := []float64{at}
	if second == 0 {
		times = []float64{0, at}
	}
	for _, t := range times {
		area.X = append(area.X, t)
		for i, share := range shares {
			area.Layers[i].Y = append(area.Layers[i].Y, share)
		}
	}
}

// known returns how many seconds an area has.
func known(area *chart.Area) int {
	n := len(area.X)
	if n > 0 && area.X[0] == 0 {
		n--
	}
	return n
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
